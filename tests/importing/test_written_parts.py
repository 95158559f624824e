"""An import whose parts others read and write, as a job's tasks do, brings what one in a single process brings."""

from __future__ import annotations

import pickle
import random
from collections.abc import Sequence
from pathlib import Path

import pytest

import txn_source
from tests.importing.imported_topics import target_rows, write_shared_transactions
from tests.importing.test_stopped_imports import StoppedError
from txn_source import IsolationLevel
from txn_source.client.access import Access
from txn_source.foreign.target import ForeignTarget
from txn_source.importing import batch_writer, feed, import_topics, written
from txn_source.importing.batch_writer import BatchWriter
from txn_source.importing.course import Lane
from txn_source.importing.feed import Feed
from txn_source.importing.written import PartToWrite, Recipe, WrittenFeed, write_part
from txn_source.model.errors import DataLossError, TopicNotFoundError


class Workers:
    """Write parts in any order, some of them twice; what is handed over is pickled."""

    def __init__(self, rng: random.Random, log: txn_source.Log, source: Path, fails: float = 0.0) -> None:
        self.rng, self.log, self.fails = rng, log, fails
        self.recipe = Recipe(ForeignTarget.parse(f"kafka:{source}"), ("t",), (), False)
        self.parts: list[PartToWrite] = []

    def feeds(self, lanes: Sequence[Lane], writer: BatchWriter) -> list[WrittenFeed]:
        self.writer = writer
        self.all = [WrittenFeed(lane, self.fill) for lane in lanes]
        return self.all

    def fill(self, asking: WrittenFeed) -> None:
        [(view, producer)] = self.writer.owners
        [topic] = self.recipe.open()
        asked = []
        for of in [asking, *(of for of in self.all if of.is_waiting and of is not asking), asking]:
            part = of.next_part(topic.identity, view.topic.name, view.topic.topic_id, producer.producer_id)
            if part is not None:
                asked.append((of, pickle.dumps(part)))
        done = {}
        for number in self.rng.sample(range(len(asked)), len(asked)):
            self.parts.append(pickle.loads(asked[number][1]))
            for _ in range(self.rng.choice([1, 2])):
                if self.rng.random() < self.fails:
                    raise StoppedError
                done[number] = pickle.dumps(write_part(self.log.access, self.recipe.open(), self.parts[-1]))
        for number, (of, _) in enumerate(asked):
            of.take(pickle.loads(done[number]))


def small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(written, "_PART_BYTES", 700)
    monkeypatch.setattr(feed, "STEP_ROWS", 7)
    monkeypatch.setattr(batch_writer, "BATCH_ROWS", 20)


def test_parts_of_any_workers_make_up_the_import(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Compare both targets at both levels; at failures the import is stopped, and goes on."""
    rng, fails = random.Random(1), 0.05
    write_shared_transactions(rng, tmp_path / "kafka")
    source = f"kafka:{tmp_path / 'kafka'}"
    undecided = rng.choice(["leave", "keep", "abort"])
    with txn_source.connect(tmp_path / "one") as one, txn_source.connect(tmp_path / "other") as other:
        whole = import_topics(source, "t", one, undecided=undecided)
        small_steps(monkeypatch)
        messages, parts = 0, 0
        while True:
            workers = Workers(rng, other, tmp_path / "kafka", fails)
            try:
                report = import_topics(source, "t", other, undecided=undecided, feeds_of=workers.feeds)
            except StoppedError:
                fails /= 2
                continue
            finally:
                parts += len(workers.parts)
            messages += report.messages
            break
        assert messages <= whole.messages
        assert parts > len(whole.parts)
        assert report.transactions <= whole.transactions
        for level in IsolationLevel:
            for part in whole.parts:
                rows = target_rows(one, "t", part.partition, level)
                assert target_rows(other, "t", part.partition, level) == rows, (part, level)
        assert len(one.transactions("open")) == len(other.transactions("open"))


def test_part_of_a_topic_that_was_made_again_is_refused(tmp_path: Path) -> None:
    """Hand a worker what was planned for another topic of that name, in the source and in the target."""
    write_shared_transactions(random.Random(1), tmp_path / "kafka")
    with txn_source.connect(tmp_path / "log") as log:
        workers = Workers(random.Random(1), log, tmp_path / "kafka")
        import_topics(f"kafka:{tmp_path / 'kafka'}", "t", log, feeds_of=workers.feeds)
        part = workers.parts[0]
        topics = workers.recipe.open()
        before = set(tmp_path.rglob("*.arrow"))
        log.delete_topic("t")
        log.create_topic("t", partitions=3)
        with pytest.raises(TopicNotFoundError, match="deleted, and made again"):
            write_part(log.access, topics, part)
        for metadata in (tmp_path / "kafka").rglob("partition.metadata"):
            metadata.write_text(f"version: 0\ntopic_id: {'A' * 22}")
        with pytest.raises(DataLossError, match="deleted and made again"):
            write_part(log.access, workers.recipe.open(), part)
        assert set(tmp_path.rglob("*.arrow")) <= before


def test_part_that_fails_leaves_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Stop a worker while it reads: what it wrote is removed."""
    write_shared_transactions(random.Random(2), tmp_path / "kafka")
    small_steps(monkeypatch)
    monkeypatch.setattr(written, "_PART_BYTES", 1 << 20)
    steps = Feed.step
    calls = 0

    def step(self: Feed) -> list[feed.Run | feed.Written]:
        nonlocal calls
        calls += not isinstance(self, WrittenFeed)
        if calls > 2:
            raise StoppedError
        return steps(self)

    monkeypatch.setattr(Feed, "step", step)
    with txn_source.connect(tmp_path / "log") as log:
        workers = Workers(random.Random(2), log, tmp_path / "kafka")
        with pytest.raises(StoppedError):
            import_topics(f"kafka:{tmp_path / 'kafka'}", "t", log, feeds_of=workers.feeds)
        assert calls > 2
        assert isinstance(log.access, Access)
        assert not list(tmp_path.rglob("*.arrow"))
