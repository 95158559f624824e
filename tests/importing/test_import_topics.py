"""What an import takes, leaves and refuses; what becomes of headers and times."""

from __future__ import annotations

import json
import random
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest
from typer.testing import CliRunner

import txn_source
from tests.foreign.kafka.batch_writer import Record
from tests.foreign.kafka.partition_writer import PartitionWriter
from tests.foreign.pulsar.offload_writer import Sent, batch, write_ledger
from tests.importing.imported_topics import ApartWriter, target_rows, write_shared_transactions
from tests.log.sites import ManualClock, Site
from tests.selection import mostly_long
from txn_source import IsolationLevel
from txn_source.cli.app import app
from txn_source.importing import import_topics, importer
from txn_source.model.errors import (
    DataLossError,
    InvalidArgumentError,
    LogNotFoundError,
    SchemaMismatchError,
    TopicNotFoundError,
    TransactionEndedError,
)

COMMITTED, UNCOMMITTED = IsolationLevel.READ_COMMITTED, IsolationLevel.READ_UNCOMMITTED


def record(number: int) -> Record:
    return Record(b"k", b"%d" % number)


def saved(writer: PartitionWriter) -> None:
    writer.flush()
    writer.snapshot()


def values(log: txn_source.Log, level: IsolationLevel, topic: str = "t") -> list[int]:
    return [int(row[1]) for row in target_rows(log, topic, 0, level)]


@pytest.fixture
def log(embedded_site: Site) -> txn_source.Log:
    """A new log, embedded: where an import goes makes no difference but to its calls."""
    return embedded_site.connect()


@pytest.fixture
def source(tmp_path: Path) -> PartitionWriter:
    """A plain message, a committed one behind an open transaction's first one, and another plain one."""
    writer = PartitionWriter(tmp_path / "kafka")
    writer.send([record(0)])
    writer.send([record(1)], 1, transactional=True)
    writer.send([record(2)], 2, transactional=True)
    writer.end_transaction(2, commit=True)
    writer.send([record(3)])
    saved(writer)
    return writer


def test_undecided_transactions_are_left_to_a_later_run(source: PartitionWriter, log: txn_source.Log) -> None:
    """Import, let the source go on, and import again."""
    text = f"kafka:{source.root}"
    first = import_topics(text, "t", log)
    assert (first.messages, first.parts[0].end.key, first.parts[0].source_end.key) == (1, 1, 5)
    assert values(log, UNCOMMITTED) == [0]
    source.end_transaction(1, commit=False)
    saved(source)
    assert import_topics(text, "t", log).messages == 3
    assert (values(log, COMMITTED), values(log, UNCOMMITTED)) == ([0, 2, 3], [0, 1, 2, 3])
    assert import_topics(text, "t", log).messages == 0


@pytest.mark.parametrize("commit", mostly_long([True, False], True))
def test_undecided_transactions_can_be_kept_open(source: PartitionWriter, log: txn_source.Log, commit: bool) -> None:
    """Both levels show what the source shows, before its transaction ends and after that."""
    text = f"kafka:{source.root}"
    assert import_topics(text, "t", log, undecided="keep").messages == 4
    assert (values(log, COMMITTED), values(log, UNCOMMITTED)) == ([0], [0, 1, 2, 3])
    [kept] = log.transactions("open")
    assert import_topics(text, "t", log, undecided="keep").messages == 0
    source.send([record(4)], 1, transactional=True)
    source.end_transaction(1, commit=commit)
    source.send([record(5)], 1, transactional=True)
    saved(source)
    import_topics(text, "t", log, undecided="keep")
    all_of_it = [0, 1, 2, 3, 4] if commit else [0, 2, 3]
    assert (values(log, COMMITTED), values(log, UNCOMMITTED)) == (all_of_it, [0, 1, 2, 3, 4, 5])
    found = log.scan("t", UNCOMMITTED, ["value", "__txn_id", "__txn_status"]).read_all().to_pylist()
    ids = {int(row["value"]): row["__txn_id"] for row in found}
    assert ids[1] == ids[4] == str(kept.id) != ids[5]
    assert [row["__txn_status"] for row in found][-1] == "open"


def test_kept_transaction_waits_if_it_is_left_the_next_time(source: PartitionWriter, log: txn_source.Log) -> None:
    """A run that leaves what is undecided doesn't end what an earlier one has kept."""
    text = f"kafka:{source.root}"
    import_topics(text, "t", log, undecided="keep")
    assert import_topics(text, "t", log).messages == 0
    assert len(log.transactions("open")) == 1
    source.end_transaction(1, commit=True)
    saved(source)
    import_topics(text, "t", log)
    assert not log.transactions("open")
    assert values(log, COMMITTED) == [0, 1, 2, 3]


def test_undecided_transactions_can_be_aborted(source: PartitionWriter, log: txn_source.Log) -> None:
    """A source that ends is taken whole."""
    assert import_topics(f"kafka:{source.root}", ["t"], log, undecided="abort").messages == 4
    assert (values(log, COMMITTED), values(log, UNCOMMITTED)) == ([0, 2, 3], [0, 1, 2, 3])
    assert not log.transactions("open")


def test_topics_are_imported_together(tmp_path: Path, site: Site) -> None:
    """A transaction over two topics is one of the target's, whose names may be others, also over a service."""
    writers = [PartitionWriter(tmp_path / "kafka", topic=topic) for topic in ("orders", "payments")]
    for number, writer in enumerate(writers):
        writer.send([record(number)], 7, transactional=True)
        writer.end_transaction(7, commit=True)
        saved(writer)
    with site.connect() as log:
        report = import_topics(f"kafka:{tmp_path / 'kafka'}", ["orders", "payments"], log, names=["a", "b/c/d"])
        assert (report.messages, report.transactions) == (2, 1)
        ids = {
            row["__txn_id"]
            for topic in ("a", "b/c/d")
            for row in log.scan(topic, columns=["__txn_id"]).read_all().to_pylist()
        }
        assert len(ids) == 1
        assert (values(log, COMMITTED, "a"), values(log, COMMITTED, "b/c/d")) == ([0], [1])


def test_headers_become_properties_and_timestamps_event_times(tmp_path: Path, log: txn_source.Log) -> None:
    """Nothing of a header is lost, whatever is in it."""
    rows = [
        (0, [(b"a", b"x"), (b"b", "ü".encode())], {"a": "x", "b": "ü"}),
        (1, [(b"a", b"\xff\0")], {"a;base64": "/wA="}),
        (2, [(b"a", None), (b"a", b"1"), (b"a", b"2")], {"a;null": "", "a": "1", "a;2": "2"}),
        (3, [(b"", b"")], {"": ""}),
        (4, [], {}),
    ]
    writer = PartitionWriter(tmp_path / "kafka")
    for number, headers, _ in rows:
        writer.send([Record(None, b"%d" % number, 1_750_000_000_123, headers)])
    writer.send([Record(None, b"5", -1)])
    writer.send([Record(None, b"6", 1 << 58)])
    saved(writer)
    import_topics(f"kafka:{tmp_path / 'kafka'}", "t", log)
    found = target_rows(log, "t", 0, COMMITTED)
    assert [row[3] for row in found] == [*(properties for *_, properties in rows), {}, {}]
    time = datetime(2025, 6, 15, 15, 6, 40, 123_000, tzinfo=UTC)
    assert [row[2] for row in found] == [*[time] * len(rows), None, None]


def test_unfit_targets_are_refused_before_anything_changes(tmp_path: Path, log: txn_source.Log) -> None:
    """Typed columns, other partitions, messages of its own, another source, a lost topic, a wrong choice."""
    write_shared_transactions(random.Random(1), tmp_path / "kafka")
    source = f"kafka:{tmp_path / 'kafka'}"
    log.create_topic("typed", partitions=3, schema=pa.schema([("a", pa.int64())]))
    log.create_topic("two", partitions=2)
    log.create_topic("own", partitions=3)
    with log.producer("own") as producer:
        producer.send(b"mine")
    before = log.topics()
    for names, error, text in [
        (["typed"], SchemaMismatchError, "'typed' has typed columns"),
        (["two"], InvalidArgumentError, "'two' has 2 partitions, and t has 3"),
        (["own"], InvalidArgumentError, "'own' has messages that weren't imported"),
        (["a", "b"], InvalidArgumentError, "1 topics can't have the names a, b"),
        (["a b"], InvalidArgumentError, "a b"),
    ]:
        with pytest.raises(error, match=text):
            import_topics(source, "t", log, names=names)
    with pytest.raises(TopicNotFoundError, match="lost"):
        import_topics(source, "lost", log)
    with pytest.raises(InvalidArgumentError, match="'perhaps'"):
        import_topics(source, "t", log, undecided="perhaps")
    with pytest.raises(InvalidArgumentError, match="No topic is named"):
        import_topics(source, [], log)
    with pytest.raises(LogNotFoundError):
        import_topics(f"kafka:{tmp_path / 'nothing'}", "t", log)
    assert log.topics() == before


def test_another_source_is_refused(tmp_path: Path, log: txn_source.Log) -> None:
    """A topic that was deleted and made again isn't the one that was imported."""
    writer = PartitionWriter(tmp_path / "kafka")
    writer.send([record(0)])
    saved(writer)
    import_topics(f"kafka:{tmp_path / 'kafka'}", "t", log)
    (writer.folder / "partition.metadata").write_text("version: 0\ntopic_id: XOgonVTsST6cSWjH7qZHsw")
    with pytest.raises(InvalidArgumentError, match="was imported from kafka:"):
        import_topics(f"kafka:{tmp_path / 'kafka'}", "t", log)


def test_what_the_source_lost_meanwhile_is_told(tmp_path: Path, log: txn_source.Log) -> None:
    """Trim the source beyond where the import had come to, and cut it back below."""
    writer = PartitionWriter(tmp_path / "kafka")
    writer.send([record(0), record(1)])
    saved(writer)
    import_topics(f"kafka:{tmp_path / 'kafka'}", "t", log)
    writer.send([record(2), record(3)])
    writer.close(log_start=3)
    with pytest.raises(DataLossError, match="what lies between was deleted before it was imported"):
        import_topics(f"kafka:{tmp_path / 'kafka'}", "t", log)
    assert values(log, COMMITTED) == [0, 1]


def test_empty_topic_and_aborted_ones_only(tmp_path: Path, log: txn_source.Log) -> None:
    """A topic without messages is made; one with nothing but aborted ones shows them to read_uncommitted."""
    empty = ApartWriter(tmp_path / "kafka", topic="empty", partition=1)
    aborted = ApartWriter(tmp_path / "kafka", topic="aborted")
    aborted.send([record(0)], 1, transactional=True)
    aborted.end_transaction(1, commit=False)
    for writer in (empty, aborted):
        saved(writer)
    import_topics(f"kafka:{tmp_path / 'kafka'}", ["empty", "aborted"], log)
    assert len(log.stats("empty").partitions) == 2
    assert (values(log, COMMITTED, "aborted"), values(log, UNCOMMITTED, "aborted")) == ([], [0])


def test_command_imports_and_says_what_it_would_do(source: PartitionWriter, tmp_path: Path) -> None:
    """``--dry-run`` makes nothing, not even the log's folder."""
    root = tmp_path / "made"

    def run(*more: str) -> str:
        done = CliRunner().invoke(app, ["import", f"kafka:{source.root}", "t", "--to", str(root), *more])
        assert done.exit_code == 0, done.output
        return done.output

    dry = json.loads(run("--dry-run", "--json"))
    assert dry["messages"] == 0
    assert not root.exists()
    assert "Imported 1 message, 0 transactions." in run()
    assert "2 transactions would be imported. Nothing was changed." in run("--dry-run", "--undecided", "abort")
    assert json.loads(run("--json", "--undecided", "abort"))["messages"] == 3
    wrong = CliRunner().invoke(app, ["import", f"kafka:{source.root}", "t"])
    assert wrong.exit_code == 2


def test_more_partitions_than_are_read_at_once(
    tmp_path: Path, log: txn_source.Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Transactions over all partitions stay whole though some of these are read later."""
    monkeypatch.setattr(importer, "LANES_AT_ONCE", 2)
    expected = write_shared_transactions(random.Random(3), tmp_path / "kafka", partitions=5)
    import_topics(f"kafka:{tmp_path / 'kafka'}", "t", log)
    columns = ["__partition", "value", "__txn_id"]
    found = log.scan("t", UNCOMMITTED, columns, consistent_cut=False).read_all().to_pylist()
    ids: dict[tuple[int, int], set[str]] = {}
    for partition, rows in enumerate(expected):
        mine = [row for row in found if row["__partition"] == partition]
        assert [row["value"] for row in mine] == [row[1] for row in rows]
        for row, (_, _, producer, epoch, _) in zip(mine, rows, strict=True):
            ids.setdefault((producer, epoch), set()).add(row["__txn_id"])
    assert all(len(of) == 1 for of in ids.values())


def test_topic_of_two_kinds_is_refused(tmp_path: Path, log: txn_source.Log) -> None:
    """Ledgers of ``orders`` and of ``orders-partition-0`` would be the same partition."""
    for ledger, name in ((1, "orders"), (2, "orders-partition-0")):
        (tmp_path / "pulsar").mkdir(exist_ok=True)
        write_ledger(tmp_path / "pulsar", ledger, [batch([Sent(b"1")])], f"public/default/persistent/{name}")
    with pytest.raises(InvalidArgumentError, match="a topic without partitions, and of one with them"):
        import_topics(f"pulsar:{tmp_path / 'pulsar'}", "orders", log)


def test_progress_is_no_policy_and_goes_with_the_topic(source: PartitionWriter, log: txn_source.Log) -> None:
    """Policies don't show how far an import is; a topic that is deleted is imported from its beginning."""
    text = f"kafka:{source.root}"
    import_topics(text, "t", log, undecided="abort")
    assert "import" not in log.policies("t")
    log.set_policies("t", data_read_priority="bookkeeper-first")
    assert import_topics(text, "t", log).messages == 0
    log.delete_topic("t")
    assert import_topics(text, "t", log, undecided="abort").messages == 4


def test_unknown_options_of_a_source_are_refused(source: PartitionWriter, log: txn_source.Log) -> None:
    """Each format names its own."""
    with pytest.raises(InvalidArgumentError, match="Kafka's have no option 'managedLedgers'"):
        import_topics(f"kafka:{source.root}", "t", log, options={"managedLedgers": "{}"})


@pytest.mark.parametrize("days", [6, 8])
def test_stopped_import_has_a_week(days: int, source: PartitionWriter, clocked_site: Site, clock: ManualClock) -> None:
    """What was open where an import ended is aborted after that, and the import is refused if it wasn't so."""
    text = f"kafka:{source.root}"
    with clocked_site.connect() as log:
        import_topics(text, "t", log, undecided="keep")
        clock.advance(days * 24 * 3600)
        source.end_transaction(1, commit=True)
        saved(source)
        if days < 7:
            import_topics(text, "t", log)
            assert values(log, COMMITTED) == [0, 1, 2, 3]
        else:
            with pytest.raises(TransactionEndedError, match="delete the topics, and import them again"):
                import_topics(text, "t", log)
