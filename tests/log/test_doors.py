"""The public doors: whatever is given, what comes out is a ``TxnLogError``, and nothing has changed."""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import txn_source
from tests.log.reading import BY_HAND, UNCOMMITTED, rows
from tests.log.sites import Site
from tests.selection import for_each
from txn_source import Batching, Log, TopicNotFoundError, TxnLogError, connect
from txn_source.model.door import guard, guarded, translated
from txn_source.model.errors import InternalError, InvalidArgumentError, StorageWriteError, UnavailableError
from txn_source.storage.segment import SegmentReader


class Unlikely:
    """Neither text nor number, and of no hash."""

    __hash__ = None  # type: ignore[assignment]


WRONG: list[Any] = [
    None,
    5,
    -1,
    1 << 70,
    -(1 << 70),
    math.nan,
    math.inf,
    True,
    "x",
    "",
    "\ud800",
    "a\0b",
    "x" * 5000,
    b"\xff",
    object(),
    Unlikely(),
    [],
    [None],
    {},
    {"orders": {"0": "\ud800"}},
    {"orders": {"0": "999999999999999999999:0"}},
    "99999999999999999999:0:0",
]
WAITS = {"timeout": 0.001}
"""Arguments without which a call would wait for ever."""
ENDS = {"close", "unsubscribe"}


def public(kind: type) -> list[str]:
    """Return the names of a class's public methods."""
    return sorted(
        n
        for n, m in inspect.getmembers(kind)
        if not n.startswith("_") and callable(m) and n not in ENDS and n[:3] != "on_"
    )


def calls_of(function: Any, good: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield arguments with one of them wrong and the others good, or missing where they may be."""
    parameters = [p for p in inspect.signature(function).parameters.values() if p.kind is not p.VAR_KEYWORD]
    needed = {p.name: good.get(p.name, "x") for p in parameters if p.default is p.empty or p.name in WAITS}
    for parameter in parameters:
        for wrong in WRONG:
            if parameter.name in WAITS and wrong in (None, 5, math.inf, 1 << 70):
                continue  # it would wait
            yield needed | {parameter.name: wrong}


def what_came_out(call: Any) -> str | None:
    """Return an error that isn't ours, or says that it is our bug; None if there was none."""
    try:
        call()
    except TxnLogError as error:
        return str(error) if isinstance(error, InternalError) else None
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return None


def use(result: Any) -> None:
    """Read what can be read, and close what can be closed."""
    if hasattr(result, "read_all"):
        result.read_all()
    elif hasattr(result, "close"):
        result.close()


def wrong_calls(thing: Any, good: dict[str, Any], but: frozenset[str] = frozenset()) -> list[str]:
    """Call every public method with wrong arguments, and return what came out that isn't ours."""
    found = []
    for name in public(type(thing)):
        if name in but:
            continue
        function = getattr(thing, name)
        for arguments in calls_of(function, good):
            came = what_came_out(lambda call=function, arguments=arguments: use(call(**arguments)))
            if came:
                found.append(f"{type(thing).__name__}.{name}({arguments!r:.200}): {came}")
    return found


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some of the wrong values are taken for relative paths: what is made of them doesn't lie in the repository."""
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def busy(site: Site) -> Log:
    """A log with a topic that has messages, a transaction and a subscription."""
    log = site.connect()
    log.create_topic("orders", partitions=2)
    with log.producer("orders") as producer:
        for i in range(4):
            producer.send(b"%d" % i, key=b"%d" % i)
    log.create_subscription("orders", "booking", initial_position="earliest")
    return log


GOOD = {
    "topic": "orders",
    "name": "orders",
    "to": "earliest",
    "value": b"v",
    "id": "(0,0)",
    "level": UNCOMMITTED,
} | WAITS


def test_log_lets_only_its_own_errors_out(busy: Log) -> None:
    """Call each method of the log with each wrong value at each place; the topic reads the same afterwards."""
    before = rows(busy, "orders")
    assert wrong_calls(busy, GOOD, frozenset({"maintain", "copies_read"})) == []
    assert rows(busy, "orders") == before
    busy.collect_garbage(0.0)
    assert rows(busy, "orders") == before


def test_producer_lets_only_its_own_errors_out(busy: Log) -> None:
    """Likewise for a producer: what it took, and nothing else, is stored."""
    producer = busy.producer("orders", batching=BY_HAND)
    batch = pa.record_batch([pa.array([b"v"])], names=["value"])
    assert wrong_calls(producer, GOOD | {"batch": batch}) == []
    stored = len(rows(busy, "orders", UNCOMMITTED))
    assert len(producer.flush()) + 4 >= stored
    producer.send(b"last")
    assert len(producer.flush()) == 1


def test_transaction_lets_only_its_own_errors_out(busy: Log) -> None:
    """Likewise for a transaction, which can still be used."""
    transaction = busy.begin_transaction()
    assert wrong_calls(transaction, {}, frozenset({"commit", "abort"})) == []
    busy.producer("orders").send(b"v", txn=transaction)
    transaction.commit()


def test_consumer_and_reader_let_only_their_own_errors_out(busy: Log) -> None:
    """Likewise for a consumer and a reader, which still receive."""
    with busy.subscribe("orders", "booking") as consumer, busy.reader("orders") as reader:
        assert wrong_calls(consumer, GOOD) == []
        assert wrong_calls(reader, GOOD) == []
        consumer.seek("earliest")
        reader.seek("earliest")
        assert consumer.receive(timeout=30) is not None
        assert reader.read_next(timeout=30) is not None


@pytest.mark.parametrize(
    "wrong",
    [*WRONG, "localhost", "localhost:0", "localhost:99999", ":6650"],
    ids=lambda w: re.sub(" at 0x[0-9a-f]+", "", repr(w))[:30],
)
@pytest.mark.parametrize("place", ["path", "endpoint", "timeout"])
def test_connect_lets_only_its_own_errors_out(
    wrong: Any, place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Connect to each wrong value."""
    monkeypatch.chdir(tmp_path)
    arguments = {"path": "log", place: wrong} if place != "endpoint" else {"endpoint": wrong, "timeout": 0.05}
    assert what_came_out(lambda: txn_source.connect(**arguments).close()) is None


def test_damaged_database_is_an_error_of_ours(embedded_site: Site) -> None:
    """Overwrite the database, and call the log: SQL's own errors stay inside, as the cause."""
    log = embedded_site.connect()
    log.create_topic("orders")
    log.close()
    for file in embedded_site.root.glob("metadata.db*"):
        file.write_bytes(b"no database" * 1000)
    with pytest.raises(TxnLogError) as caught:
        txn_source.connect(embedded_site.root).topics()
    assert caught.value.__cause__ is not None


def test_error_while_a_scan_or_consumer_reads_is_ours(busy: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let reading a segment fail as nobody expected, once ``scan`` has returned, and under a consumer."""

    def broken(*_: Any) -> None:
        raise KeyError("segment")

    scanned = busy.scan("orders")
    monkeypatch.setattr(SegmentReader, "read", broken)
    with pytest.raises(InternalError, match="KeyError"):
        scanned.read_all()
    with busy.reader("orders") as reader, pytest.raises(InternalError, match="KeyError"):
        reader.read_next(timeout=30)


# The door itself


@guarded(but=("free",), also=("_inner",))
class House:
    """Something with every kind of member."""

    def call(self, number: int, /, error: Exception | None = None) -> int:
        """Raise an error, or return the number."""
        if error is not None:
            raise error
        return number

    def free(self, error: Exception) -> None:
        raise error

    def _inner(self, error: Exception) -> None:
        raise error

    @property
    def broken(self) -> int:
        """Never there."""
        return {}["x"]

    @staticmethod
    def still(error: Exception) -> None:
        raise error

    @classmethod
    def of(cls, error: Exception) -> None:
        raise error

    def __iter__(self) -> Iterator[int]:
        yield 1
        raise KeyError("x")


@for_each(
    ("error", "becomes"),
    [
        (KeyError("x"), InternalError),
        (OSError(28, "No space left on device", "/f"), StorageWriteError),
        (PermissionError(13, "Permission denied", "/f"), UnavailableError),
        (OSError(36, "File name too long", "/f"), InvalidArgumentError),
        (UnicodeEncodeError("utf-8", "\ud800", 0, 1, "surrogates"), InvalidArgumentError),
        (OverflowError("too large"), InvalidArgumentError),
        (pa.ArrowInvalid("x"), InternalError),
        (UnavailableError("a", "b"), UnavailableError),
    ],
)
def test_error_of_another_kind_becomes_ours_with_its_cause(error: Exception, becomes: type[TxnLogError]) -> None:
    """Raise errors behind each kind of door: ours comes out, caused by the other; ours goes through as it is."""
    house = House()
    assert type(translated(error, "it")) is becomes
    for door in (
        lambda: house.call(1, error),
        lambda: house._inner(error),
        lambda: House.of(error),
        lambda: House.still(error),
    ):
        with pytest.raises(becomes) as caught:
            door()
        assert caught.value is error or caught.value.__cause__ is error
    with pytest.raises(type(error)) as raised:
        house.free(error)
    assert raised.value is error


def test_what_is_nobodys_error_goes_through() -> None:
    """Raise what no call is to blame for, and call with arguments that aren't there."""
    house = House()
    for error in (MemoryError(), DeprecationWarning("w")):
        with pytest.raises(type(error)):
            house.call(1, error)
    with pytest.raises(KeyboardInterrupt):
        house.call(1, KeyboardInterrupt())  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="missing 1 required positional argument"):
        house.call()  # type: ignore[call-arg]
    with pytest.raises(InternalError, match=r"broken\(\) failed with KeyError"):
        house.broken  # noqa: B018
    with pytest.raises(InternalError):
        list(house)
    assert house.call(7) == 7
    assert House.call.__doc__ == "Raise an error, or return the number."


def test_value_of_another_kind_than_asked_for_is_named() -> None:
    """Let a guarded function fail at a value that its annotation leaves out: the error names it."""

    @guard
    def length(text: str, at: int | None = None) -> int:
        return len(text) + int(at or 0)

    with pytest.raises(InvalidArgumentError, match=r"length\(\): text is 5\. Give it as str\."):
        length(5)  # type: ignore[arg-type]
    with pytest.raises(InvalidArgumentError, match=r"length\(\): at is 'x'\. Give it as int \| None\."):
        length("a", "x")  # type: ignore[arg-type]


@pytest.mark.parametrize("value", [True, float("nan"), "5"])
def test_what_is_no_number_is_refused_where_one_is_expected(embedded_site: Site, value: Any) -> None:
    """Give a truth value, NaN or text as a time, a count or a partition: it is refused in our words, before a use."""
    log = embedded_site.connect()
    log.create_topic("orders", partitions=3)
    log.create_subscription("orders", "s")
    consumer = log.subscribe("orders", "c", initial_position="earliest")
    producer = log.producer("orders", batching=BY_HAND)
    producer.send(b"first", partition=1)
    batch = pa.record_batch({"value": [b"x"]})
    calls: list[Callable[[], Any]] = [
        lambda: connect(embedded_site.root, timeout=value),
        lambda: log.begin_transaction(timeout=value),
        lambda: log.transactions(limit=value),
        lambda: log.create_topic("other", partitions=value),
        lambda: log.update_topic("orders", partitions=value),
        lambda: log.roll_ledger("orders", value),
        lambda: log.collect_garbage(older_than=value),
        lambda: log.seek("orders", "s", "earliest", epoch=value),
        lambda: consumer.receive(value),
        lambda: producer.send(b"x", partition=value),
        lambda: producer.send_batch(batch, partition=value),
        *(
            lambda name=name: Batching(**{name: value})  # type: ignore[misc]
            for name in ("linger_s", "max_messages", "max_bytes")
        ),
        *(
            lambda name=name: log.subscribe("orders", "new", **{name: value})  # type: ignore[misc]
            for name in (
                *("queue_size", "max_redeliveries"),
                *("acknowledge_interval", "negative_acknowledge_delay", "acknowledge_timeout"),
            )
        ),
    ]
    taken = []
    for number, call in enumerate(calls):
        try:
            call()
        except (InvalidArgumentError, TopicNotFoundError):
            continue
        taken.append(number)
    assert taken == []
    assert len(producer.flush()) == 1
