"""All files in the places of a log that have names of its form, each with the database's verdict."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from txn_source.client.access import Access
from txn_source.client.hot_roots import Place, places_of
from txn_source.client.tiering.targets import targets
from txn_source.model.verdict import Verdict
from txn_source.storage.object_names import may_be_object, may_be_second_file, object_of_second_file
from txn_source.storage.object_store import reason
from txn_source.storage.segment import SegmentName
from txn_source.storage.tiered_check import owner_of


@dataclass(frozen=True, slots=True)
class UnknownFile:
    """A file of which the log doesn't know whether somebody needs it: where it lies (the name of a root, or the place
    that ledgers are offloaded to), its path or URI, its size, and when it was last written (seconds since the epoch).
    """

    place: str
    uri: str
    size: int
    modified_at_s: float


class Inventory:
    """What lies in the roots and targets that can be reached. It is listed first and judged then: what comes meanwhile
    isn't in it, and what was registered meanwhile is known."""

    def __init__(self, access: Access, places: Sequence[Place] | None = None) -> None:
        """``places`` are the roots to be listed; None: all."""
        self._access = access
        self.places = places_of(access) if places is None else list(places)
        self.files: dict[str, list[UnknownFile]] = {}
        self.away: dict[str, str] = {}
        """Why some of the roots and targets can't be listed now, by the root's name or where the target is."""
        for file in (*self._segments(), *self._objects()):
            self.files.setdefault(file.uri, []).append(file)
        uris = sorted(self.files)
        self._verdicts = dict(zip(uris, access.metadata.judge_files(uris), strict=True))
        for uri, verdict in list(self._verdicts.items()):
            if verdict in (Verdict.UNKNOWN, Verdict.AHEAD) and may_be_object(uri) and not _is_ours(access, uri):
                del self._verdicts[uri]  # another log's

    def of(self, verdict: Verdict, oldest: float = float("inf")) -> dict[str, list[UnknownFile]]:
        """Return the files of a verdict of which no copy was written after a time, by path or URI."""
        return {
            uri: files
            for uri, files in self.files.items()
            if self._verdicts.get(uri) is verdict and all(file.modified_at_s <= oldest for file in files)
        }

    def tails(self) -> list[tuple[UnknownFile, int]]:
        """Return the segments with bytes behind what the log knows of them, of the time that it has lost, and where
        those begin; of several copies the longest. None if it was never put back, or if that is settled."""
        recovered_at_s = self._access.metadata.recovered_at_s()
        if recovered_at_s is None:
            return []
        found = []
        for topic in self._access.metadata.list_topics():
            for segment in self._access.metadata.list_hot_segments(topic):
                lost = [file for file in self.files.get(segment.path, ()) if file.modified_at_s <= recovered_at_s]
                longest = max(lost, key=lambda file: file.size, default=None)
                if longest is not None and longest.size > segment.end:
                    found.append((longest, segment.end))
        return found

    def _segments(self) -> Iterator[UnknownFile]:
        """Yield the segments in all roots that can be listed."""
        for place in self.places:
            try:
                place.check()
                for found in place.segments.stored():
                    if SegmentName.parse(found.path) is not None:  # what isn't ours isn't our garbage
                        yield UnknownFile(place.name, found.path, found.size, found.modified_at_s)
            except OSError as error:
                if len(self.places) == 1:
                    raise
                self.away[place.name] = reason(error)
                place.failed(error)

    def _objects(self) -> Iterator[UnknownFile]:
        """Yield the objects in the places that ledgers are offloaded to, of two files with the first one's name."""
        for target in targets(self._access):
            if why := target.why_unreachable():
                self.away[target.shown] = why
                continue
            for found in target.stored():
                if may_be_object(found.uri):
                    yield UnknownFile(target.shown, found.uri, found.size, found.modified_at_s)
                elif may_be_second_file(found.uri.partition("?")[0]):
                    its_object = object_of_second_file(found.uri)
                    yield UnknownFile(target.shown, its_object, found.size, found.modified_at_s)


def _is_ours(access: Access, uri: str) -> bool:
    """True if an object says that it is this log's, or lies in its own folder and says nothing."""
    try:
        told = owner_of(access.root, uri)
    except FileNotFoundError:
        told = None  # the second file alone is there
    except OSError:
        return False
    return "://" not in uri and not uri.startswith("/") if told is None else told.log_id == access.metadata.log_id
