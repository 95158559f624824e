"""The doctor and places: copies in several roots, PostgreSQL, object stores, an endpoint, and other logs' places."""

from __future__ import annotations

import json
import shutil
import threading
import time
from pathlib import Path

import pytest

import txn_source
from tests.log import tiers
from tests.log.reading import BY_HAND, registered, send_each, values
from tests.log.roots import Roots, log, roots, spoil
from tests.log.sites import Site
from tests.selection import mostly_long
from tests.upkeep.doctored import age, codes, fill, look
from txn_source import Log
from txn_source.model.errors import InvalidArgumentError, LogNotFoundError, UnavailableError
from txn_source.model.topic_name import TopicName
from txn_source.storage.object_requests import requests_for
from txn_source.storage.segment_store import ObjectSegments
from txn_source.upkeep.doctor.checks import objects
from txn_source.upkeep.doctor.codes import Severity
from txn_source.upkeep.doctor.opening import Where
from txn_source.upkeep.doctor.subject import Checksums, Surroundings

__all__ = ["log", "roots"]
OF_THE_DATABASE = {
    "consumers and cursors",
    "waiting files and offloads",
    "publish times",
    "states of transactions",
    "totals and pages",
    "files that nothing refers to",
}
"""What can't be looked at over an endpoint."""


# Copies in several roots


@pytest.fixture
def written(log: Log) -> Log:
    """Six messages, a segment each, in three roots."""
    send_each(log.producer("t", batching=BY_HAND), [b"%d" % n for n in range(6)])
    return log


@pytest.mark.parametrize(
    ("name", "damage", "code"),
    mostly_long(
        [("b", "gone", "copy-missing"), ("main", "flipped", "copy-damaged")], ("main", "flipped", "copy-damaged")
    ),
)
def test_copies_are_found_and_made_anew(written: Log, roots: Roots, name: str, damage: str, code: str) -> None:
    """Damage one copy of three: it is found and copied again, and the messages are there all the time."""
    assert look(roots.main).findings == ()
    path = roots.segments(name)[2]
    before = path.read_bytes()
    spoil(path, damage)
    report = look(roots.main)
    assert codes(report) == [code], report.findings
    assert [one.operands["root"] for one in report.findings] == [name]
    written.maintain(verify=True)
    assert look(roots.main).findings == ()
    assert path.read_bytes() == before
    assert len(values(written, "t")) == 6


def test_many_lost_copies_are_told_in_few_lines(log: Log, roots: Roots) -> None:
    """Lose the disk of a root, and have it back empty: of many findings of a kind the last one stands for the rest."""
    send_each(log.producer("t", batching=BY_HAND), [b"%d" % n for n in range(30)])
    shutil.rmtree(roots.b / "segments")
    report = look(roots.main)
    assert codes(report) == ["copy-missing"]
    assert len(report.findings) == 21
    assert [one.operands["more"] for one in report.findings if "more" in one.operands] == [10]


def test_all_copies_of_an_entry_lost_is_an_error(written: Log, roots: Roots) -> None:
    """Damage all three copies: that is loss, and it is told once."""
    paths = [roots.segments(name)[2] for name in ("main", "b", "c")]
    for path in paths:
        spoil(path, "flipped")
    report = look(roots.main)
    assert [(one.code, one.severity) for one in report.findings] == [("segment-damaged", Severity.ERROR)]
    for path in paths:
        path.unlink()
    report = look(roots.main)
    assert [(one.code, one.severity) for one in report.findings] == [("segment-missing", Severity.ERROR)]
    assert "in main, b, c" in report.findings[0].fact


def test_root_that_is_away_or_another_logs_is_told(written: Log, roots: Roots, tmp_path: Path) -> None:
    """Take a root away, then have another log's marker there: each is told, and the others are looked at."""
    roots.lose("b")
    report = look(roots.main)
    assert [(one.code, one.operands["root"]) for one in report.findings] == [("root-unreachable", "b")]
    assert "txnlog roots add b" in report.findings[0].remedy
    roots.bring_back("b")
    marker = roots.b / "txnlog-copies.json"
    marker.write_text(json.dumps({"log_id": "another", "name": "b"}))
    report = look(roots.main)
    assert [(one.code, one.operands["root"]) for one in report.findings] == [("root-of-another-log", "b")]


def test_missing_copies_are_found(log: Log, roots: Roots) -> None:
    """Write while two roots are away, and name a root later: what lacks copies is told, and nobody reads it yet."""
    producer = log.producer("t", batching=BY_HAND)
    send_each(producer, [b"1"])
    log.set_policies("t", acknowledge_copies=1)
    producer._pipeline._copies._looked = -1e9  # a minute has passed
    roots.lose("b")
    send_each(producer, [b"2"])
    roots.bring_back("b")
    report = look(roots.main)
    assert codes(report) == ["copies-few"]
    log.maintain()
    log.set_policies("t", acknowledge_copies=3)
    producer._pipeline._copies._looked = -1e9
    roots.lose("c")
    producer.send(b"3")
    with pytest.raises(UnavailableError):
        producer.flush()
    producer._closed = True  # as a crash leaves it
    producer._linger.stop()
    roots.bring_back("c")
    report = look(roots.main)
    assert codes(report) == ["copies-few", "entries-short"]
    log.maintain()
    assert look(roots.main).findings == ()
    assert values(log, "t") == [b"1", b"2", b"3"]


# Services


def test_endpoint_is_looked_at_as_far_as_it_tells(tmp_path: Path) -> None:
    """Look over an endpoint: what a service tells and its files are checked, and the report names what wasn't."""
    root = tmp_path / "log"
    with Site("remote", root) as site:
        with site.connect() as log:
            log.create_topic("orders")
            tiers.write_ledgers(log)
            log.offload("orders")
        where = Where(endpoint=site.endpoint)
        report = look(where)
        assert report.findings == ()
        assert {one.check for one in report.not_checked} == OF_THE_DATABASE
        tiers.objects(root)[0].unlink()
        tiers.cut_in_half(tiers.objects(root)[0])
        tiers.flip_near_end(tiers.segments(root)[-1])
        report = look(where)
        assert codes(report) == ["object-damaged", "object-missing", "segment-damaged"]
        assert [one.severity for one in report.findings] == [Severity.ERROR, Severity.WARNING, Severity.WARNING]


def test_clock_of_the_service_is_compared(tmp_path: Path) -> None:
    """Have a service whose clock is an hour behind: that is told, and an error of a second isn't."""
    with Site("remote", tmp_path / "log") as site:
        for apart_s, found in ((3600, ["clock-differs"]), (1, [])):
            here = Surroundings(now_s=lambda apart_s=apart_s: time.time() + apart_s)
            assert codes(look(Where(endpoint=site.endpoint), surroundings=here)) == found


def test_root_of_a_service_that_is_not_here_is_told(tmp_path: Path) -> None:
    """Take away the root of a service: what it tells is looked at, and what its files would tell isn't."""
    root = tmp_path / "log"
    with Site("remote", root) as site:
        with site.connect() as log:
            log.create_topic("orders")
        (root / "txnlog.json").rename(root / "away")
        report = look(Where(endpoint=site.endpoint))
        assert codes(report) == ["root-unreachable"]
        assert {"hot segments", "roots"} <= {one.check for one in report.not_checked}
        (root / "away").rename(root / "txnlog.json")


@pytest.mark.long
def test_log_on_postgres_is_looked_at_whole(tmp_path: Path) -> None:
    """Look at a log whose metadata is in PostgreSQL, with its URL and without: all is checked, faults are found."""
    root = tmp_path / "log"
    with Site("postgres", root) as site:
        with site.connect() as log:
            log.create_topic("orders")
            tiers.write_ledgers(log)
            log.create_subscription("orders", "audit", "shared", initial_position="earliest")
            log.offload("orders")
            log.metadata.delete_copies(log.metadata.list_topics()[0], tiers.Tier.BOOKKEEPER, [1])
            log.maintain()
        assert site.url is not None
        where = Where(str(root), metadata=site.url.revealed)
        report = look(where)
        assert (report.findings, report.not_checked) == ((), ())
        with pytest.raises(InvalidArgumentError, match="--metadata"):
            look(root)
        tiers.flip_in_middle(tiers.objects(root)[1])
        stray = tiers.segments(root)[-1].with_name("1-1-0123456789ab.arrow")
        stray.write_bytes(b"x" * 100)
        age(stray)
        for name in ("metadata.db", "metadata.db-migrated"):
            (root / name).write_bytes(b"old")
        report = look(where)
        assert codes(report) == ["metadata-twice", "object-damaged", "segment-unreferenced"]


# Object stores


def test_log_on_an_object_store_is_looked_at_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Look at a log whose segments and objects are in S3: a lost and a damaged object are found, with all else right;
    so is a root without its metadata's marker. Segments are listed by the doctor and by garbage collection, once
    each."""
    listings: list[str] = []
    stored = ObjectSegments.stored
    monkeypatch.setattr(ObjectSegments, "stored", lambda self: listings.append("segments") or stored(self))
    with Site("objects", tmp_path / "meta") as site:
        uri, database = str(site.storage_uri), str(tmp_path / "meta" / "metadata.db")
        with site.connect() as log:
            log.create_topic("orders")
            producer = log.producer("orders", batching=BY_HAND)
            send_each(producer, [b"%d" % n for n in range(3)])
            log.roll_ledger("orders")
            send_each(producer, [b"%d" % n for n in range(3, 6)])
            log.offload("orders")
            hot = registered(log)
        where = Where(uri, metadata=database)
        report = look(where)
        assert (report.findings, report.not_checked, len(listings)) == ((), (), 2)
        with pytest.raises(InvalidArgumentError, match="--metadata"):
            look(Where(uri))
        requests = requests_for(uri)
        requests.delete(hot[-1])
        data = bytearray(requests.read(hot[-2]))
        data[-20] ^= 1
        requests.put(hot[-2], bytes(data))
        [tiered] = [one.path for one in requests.listed("tiered")]
        requests.put(tiered, requests.read(tiered)[:-1])
        report = look(where)
        assert len(report.findings) == 3
        assert {"object-damaged", "segment-damaged", "segment-missing"} == set(codes(report))
        requests.delete("txnlog.json")
        assert "root-of-another-log" in codes(look(where, Checksums.NONE))


class _Together:
    """Lets reads go on as soon as so many of them are under way at once."""

    def __init__(self, count: int) -> None:
        self._lock, self._under_way, self._count = threading.Lock(), 0, count
        self.met = threading.Event()

    def wait(self) -> None:
        with self._lock:
            self._under_way += 1
            if self._under_way == self._count:
                self.met.set()
        self.met.wait(60)
        with self._lock:
            self._under_way -= 1


@pytest.mark.long
def test_objects_of_a_store_are_read_several_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Hold each read of a segment, and each look at an offloaded ledger, until four of its kind are under way."""
    with Site("objects", tmp_path / "meta") as site:
        with site.connect() as log:
            log.create_topic("orders")
            with log.producer("orders", batching=BY_HAND) as producer:
                for n in range(6):
                    send_each(producer, [b"%d" % n])
                    log.roll_ledger("orders")
            log.offload("orders")
        segments, ledgers = _Together(4), _Together(4)
        fill_buffer, look_at = ObjectSegments.fill, objects.damage_of
        monkeypatch.setattr(ObjectSegments, "fill", lambda *given: segments.wait() or fill_buffer(*given))
        monkeypatch.setattr(objects, "damage_of", lambda *given: ledgers.wait() or look_at(*given))
        where = Where(str(site.storage_uri), metadata=str(tmp_path / "meta" / "metadata.db"))
        assert look(where).findings == ()
        assert segments.met.is_set()
        assert ledgers.met.is_set()


# Logs of one id


def test_restored_log_beside_its_original_has_no_finding(tmp_path: Path) -> None:
    """Back a log up and restore it: neither has a finding, though they share the place of their objects."""
    root, shared = tmp_path / "log", tmp_path / "shared"
    fill(root)
    with txn_source.connect(root) as log:
        log.set_policies(offload_uri=str(shared), offload_after_age="1d")
        log.roll_ledger("events")
        log.offload("events")
    txn_source.backup(root, tmp_path / "backup")
    txn_source.restore(tmp_path / "backup", tmp_path / "again")
    for path in shared.rglob("ledger-*"):
        age(path)
    for each in (root, tmp_path / "again"):
        assert look(each).findings == (), each


def test_copied_log_that_goes_on_beside_its_original_is_told(tmp_path: Path) -> None:
    """Copy a log's folder and go on with the copy, with one place for the objects: the original sees objects of its id
    and of ledgers that it hasn't made."""
    root, shared = tmp_path / "log", tmp_path / "shared"
    fill(root)
    with txn_source.connect(root) as log:
        log.set_policies(offload_uri=str(shared), offload_after_age="1d")
    shutil.copytree(root, tmp_path / "copy")
    with txn_source.connect(tmp_path / "copy") as log:
        for _ in range(3):
            with log.producer("events") as producer:
                producer.send(b"x", partition=0)
            log.roll_ledger("events")
        log.offload("events")
    for path in shared.rglob("ledger-*"):
        age(path)
    assert "log-twice" in codes(look(root))


def test_what_is_no_log_is_refused_as_everywhere(tmp_path: Path) -> None:
    """Name an empty folder, a missing one, and nothing behind an address."""
    (tmp_path / "empty").mkdir()
    for name in ("empty", "missing"):
        with pytest.raises(LogNotFoundError):
            look(tmp_path / name)
    with pytest.raises(UnavailableError):
        look(Where(endpoint="127.0.0.1:1", timeout_s=0.2))


def test_named_topics_alone_are_looked_at(tmp_path: Path) -> None:
    """Damage two topics and name one of them."""
    root = tmp_path / "log"
    fill(root)
    for path in (root / "segments").rglob("*.arrow"):
        tiers.flip_near_end(path)
    report = look(root, topics=(TopicName.parse("events"),))
    assert {one.subject for one in report.findings} == {"topic events"}
    assert "totals and pages" in {one.check for one in report.not_checked}
