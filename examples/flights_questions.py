"""Questions to the flights, each as a Spark SQL query and as a plain Python answer to check it against."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import date
from statistics import fmean
from typing import Any, NamedTuple


class Flight(NamedTuple):
    """What the questions need of a flight."""

    month: int
    day: int
    departed: bool
    arr_delay: int | None
    carrier: str
    dest: str
    distance: int
    time_hour: str

    @classmethod
    def of(cls, row: dict[str, str]) -> Flight:
        """Return the flight in a row of the file, which writes NA where there is no value."""
        return cls(
            int(row["month"]),
            int(row["day"]),
            row["dep_time"] != "NA",
            None if row["arr_delay"] == "NA" else int(row["arr_delay"]),
            row["carrier"],
            row["dest"],
            int(row["distance"]),
            row["time_hour"],
        )

    @property
    def aborted(self) -> bool:
        """Whether its day's transaction is aborted."""
        return is_aborted(self.month, self.day)


def is_aborted(month: int, day: int) -> bool:
    """Say whether a day's transaction is aborted: every tenth is, from January 1 on."""
    return date(2013, month, day).timetuple().tm_yday % 10 == 1


Answer = list[tuple[Any, ...]]


@dataclass(frozen=True)
class Question:
    """A question, and how Spark and how plain Python answers it."""

    text: str
    query: str
    plain: Callable[[Sequence[Flight]], Answer]


def _overview(flights: Sequence[Flight]) -> Answer:
    cancelled = sum(not f.departed for f in flights)
    return [(len(flights), cancelled, sum(f.distance for f in flights), max(f.time_hour for f in flights))]


def _endings(flights: Sequence[Flight]) -> Answer:
    by_status = defaultdict(list)
    for flight in flights:
        by_status["aborted" if flight.aborted else "committed"].append((flight.month, flight.day))
    return [(status, len(set(days)), len(days)) for status, days in sorted(by_status.items(), reverse=True)]


def _carriers(flights: Sequence[Flight]) -> Answer:
    return sorted(Counter(f.carrier for f in flights).items(), key=lambda found: (-found[1], found[0]))


def _days(flights: Sequence[Flight]) -> Answer:
    found = Counter((f.month, f.day) for f in flights)
    return sorted(((*day, count) for day, count in found.items()), key=lambda row: (-row[2], row))


def _delays(flights: Sequence[Flight]) -> Answer:
    by_dest = defaultdict(list)
    for flight in flights:
        if flight.arr_delay is not None:
            by_dest[flight.dest].append(flight.arr_delay)
    means = [(dest, fmean(delays), len(delays)) for dest, delays in by_dest.items() if len(delays) >= 50]
    return sorted(means, key=lambda row: (-row[1], row[0]))


QUESTIONS = (
    Question(
        "What is there?",
        """
        SELECT count(*) AS flights, count_if(dep_time IS NULL) AS cancelled, sum(distance) AS miles,
               date_format(max(time_hour), "yyyy-MM-dd'T'HH:mm:ss'Z'") AS last
        FROM {flights}
        """,
        _overview,
    ),
    Question(
        "How did their transactions end?",
        """
        SELECT __txn_status AS status, count(DISTINCT __txn_id) AS days, count(*) AS flights
        FROM {flights} GROUP BY status ORDER BY status DESC
        """,
        _endings,
    ),
    Question(
        "Which carriers fly most?",
        "SELECT carrier, count(*) AS flights FROM {flights} GROUP BY carrier ORDER BY flights DESC, carrier",
        _carriers,
    ),
    Question(
        "Which days are busiest?",
        "SELECT month, day, count(*) AS flights FROM {flights} GROUP BY month, day ORDER BY flights DESC, month, day",
        _days,
    ),
    Question(
        "Where do flights arrive latest, in minutes?",
        """
        SELECT dest, avg(arr_delay) AS delay, count(arr_delay) AS flights
        FROM {flights} GROUP BY dest HAVING count(arr_delay) >= 50 ORDER BY delay DESC, dest
        """,
        _delays,
    ),
)
