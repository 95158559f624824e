"""Draw the concepts: each drawing shows what a real log says of itself, in a state that is made here.

``python -m docs.tools.drawings`` writes them to ``docs/pictures``. Nothing in them changes from run to run.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import txn_source
from docs.tools.svg import BOX, GAP, HEIGHT, Drawing
from txn_source.client.log import Log
from txn_source.client.topic_stats import PartitionStats
from txn_source.model.errors import UnavailableError
from txn_source.model.position import Position, PositionRange, entry_of, ledger_of
from txn_source.model.topic_name import TopicName
from txn_source.storage.root_health import roots

PICTURES = Path(__file__).resolve().parents[1] / "pictures"
LEFT, STEP, BETWEEN = 20, BOX + GAP, 18


@dataclass(frozen=True)
class Entry:
    """An entry as the log tells it: messages as text, or the end of a transaction if there are none."""

    position: Position
    text: str
    colour: str


def _entries(log: Log, topic: str, partition: int = 0) -> list[Entry]:
    """Return the entries of a partition: what read_uncommitted reads, and markers where it reads nothing."""
    columns = ["value", "__partition", "__ledger_id", "__entry_id", "__txn_id", "__txn_status"]
    rows = log.scan(topic, "read_uncommitted", columns=columns).read_all().to_pylist()
    ends = log.metadata_table("transactions", topic).to_pylist()
    names = {row["__txn_id"]: row["value"].decode()[:2] for row in rows if row["__txn_id"]}
    found: dict[Position, Entry] = {}
    for row in rows:
        if row["__partition"] == partition:
            colour = {"aborted": "aborted", "committed": "one", "open": "two"}.get(row["__txn_status"], "plain")
            at = Position(row["__ledger_id"], row["__entry_id"])
            found.setdefault(at, Entry(at, row["value"].decode(), colour))
    for row in ends:
        if row["partition"] == partition and row["marker_position"] is not None:
            at = Position(**row["marker_position"])
            end = "commit" if row["state"] == "committed" else "abort"
            found[at] = Entry(at, f"{end} {names[row['txn_id']]}", "marker")
    return [found[at] for at in sorted(found)]


class _Strip:
    """A partition's entries from left to right, ledger by ledger, and where on the page each position begins."""

    def __init__(self, drawing: Drawing, entries: list[Entry], left: float, top: float) -> None:
        self.top = top
        self._at: dict[Position, float] = {}
        x, ledger = left, entries[0].position.ledger_id
        for entry in entries:
            if entry.position.ledger_id != ledger:
                x += BETWEEN
            ledger = entry.position.ledger_id
            drawing.box(x, top, entry.text, entry.colour, dashed=entry.colour == "marker")
            drawing.text(x + BOX / 2, top + HEIGHT + 15, str(entry.position), "faint", size=12)
            self._at[entry.position] = x
            x += STEP
        self.end = x

    def x(self, position: Position) -> float:
        """Return where a position begins: the left of its entry, or behind the last one below it."""
        if position in self._at:
            return self._at[position] - GAP / 2
        below = [at for at in self._at if at < position]
        return (self._at[max(below)] + STEP if below else min(self._at.values())) - GAP / 2


def _at(row: dict[str, int]) -> Position:
    return Position(ledger_of(row["position"]), entry_of(row["position"]))


def _send(log: Log, topic: str, *values: str, partition: int = 0, txn: object = None) -> None:
    """Send values as one entry."""
    with log.producer(topic) as producer:
        for value in values:
            producer.send(value.encode(), partition=partition, txn=txn)


def _of(log: Log, topic: str, partition: int = 0) -> PartitionStats:
    return log.stats(topic).partitions[partition]


def partition(log: Log) -> Drawing:
    """A partition: its ledgers, their entries and positions, and the messages of one entry."""
    log.create_topic("t")
    for count in (3, 2, 2):
        for number in range(count):
            _send(log, "t", *(["a", "b", "c"] if (count, number) == (3, 1) else ["a"]))
        if count == 3 or (number == 1 and len(_of(log, "t").ledgers) == 2):
            log.roll_ledger("t")
    ledgers = _of(log, "t").ledgers
    drawing = Drawing("A partition is a row of ledgers, a ledger a row of entries", 760, 200)
    rows = log.scan("t", columns=["__ledger_id", "__entry_id"]).read_all().to_pylist()
    at = [Position(row["__ledger_id"], row["__entry_id"]) for row in rows]
    entries = [Entry(each, f"{at.count(each)} msg", "plain") for each in sorted(set(at))]
    strip = _Strip(drawing, entries, LEFT, 40)
    for ledger in ledgers:
        x = strip.x(Position(ledger.ledger_id, 0)) - 4
        drawing.frame(x, 10, ledger.entries * STEP + 8, 86, dashed=not ledger.closed)
        state = (
            "closed, never changes" if ledger.closed and ledger.entries > 2 else "closed" if ledger.closed else "open"
        )
        drawing.text(x + 10, 29, f"ledger {ledger.ledger_id}: {state}", anchor="start", size=12)
    big = next(each for each in entries if each.text.startswith("3"))
    x = strip.x(big.position)
    drawing.line(x + GAP / 2 + BOX / 2, 96, x + GAP / 2 + BOX / 2, 118, "line")
    for index in range(3):
        drawing.box(x + (index - 1) * 74 + 3, 120, f"{big.position}:{index}", "one", width=70)
    drawing.text(x + 35, 178, "the message ids in entry " + str(big.position), "faint", size=12)
    return drawing


def bounds(log: Log) -> Drawing:
    """The four bounds of a partition: something was trimmed, and a transaction is open."""
    log.create_topic("t")
    _send(log, "t", "old")
    log.roll_ledger("t")
    with log.begin_transaction() as txn:
        _send(log, "t", "T1 a", txn=txn)
    _send(log, "t", "plain")
    hanging = log.begin_transaction()
    _send(log, "t", "T2 a", txn=hanging)
    _send(log, "t", "plain")
    _send(log, "t", "plain")
    gone = _of(log, "t").ledgers[0]
    log.trim("t", keep_bytes=1)
    stats = _of(log, "t")
    drawing = Drawing("The four bounds of a partition", 760, 190)
    old = Entry(Position(gone.ledger_id, 0), "trimmed", "marker")
    strip = _Strip(drawing, [old, *_entries(log, "t")], 60, 56)
    same = stats.high_watermark == stats.log_end
    marks = [(stats.log_start, "log_start"), (stats.last_stable, "last_stable")]
    marks += [] if same else [(stats.high_watermark, "high_watermark")]
    marks += [(stats.log_end, "high_watermark, log_end" if same else "log_end")]
    for position, name in marks:
        drawing.bound(strip.x(position), 44, 96, name, str(position))
    start = strip.x(stats.log_start)
    drawing.reach(start, strip.x(stats.last_stable), 122, "read_committed")
    drawing.reach(start, strip.x(stats.high_watermark), 160, "read_uncommitted")
    hanging.abort()
    return drawing


def copies(log: Log) -> Drawing:
    """The bounds where copies are missing: a root is away, and a transaction is open."""
    root = Path(str(log.target.path))
    other, away = root.with_name("b"), root.with_name("away")
    log.add_root("b", other)
    log.create_topic("t", hot_copies="main,b")
    hanging = log.begin_transaction()
    _send(log, "t", "plain")
    _send(log, "t", "T1 a", txn=hanging)
    _send(log, "t", "plain")
    shown = _entries(log, "t")
    other.rename(away)
    waiting = [log.producer("t") for _ in range(2)]
    for producer in waiting:
        producer.send(b"plain")
        with suppress(UnavailableError):
            producer.flush()
    stats = _of(log, "t")
    drawing = Drawing("The bounds of a partition whose last entries lack a copy", 760, 290)
    [view] = log.metadata.get_view([TopicName.parse("t")]).topics
    registered = PositionRange(stats.log_start, stats.log_end)
    [page] = log.metadata.list_entries(view.partitions[0].partition_id, registered)
    rows = page.entries.to_pylist()
    unseen = [Entry(_at(row), "plain", "marker") for row in rows[len(shown) :]]
    strip = _Strip(drawing, [*shown, *unseen], 190, 56)
    drawing.text(LEFT, 78, "registered", anchor="start")
    for y, name, folder in ((124, "main", root), (168, "b", away)):
        drawing.text(LEFT, y + 22, f"root {name}", anchor="start")
        for row in rows:
            if (folder / page.segments[row["segment_id"]]).is_file():
                drawing.box(strip.x(_at(row)) + GAP / 2, y, "a copy", "one")
    for position, name in (
        (stats.log_start, "log_start"), (stats.last_stable, "last_stable"),
        (stats.high_watermark, "high_watermark"), (stats.log_end, "log_end"),
    ):  # fmt: skip
        drawing.bound(strip.x(position), 44, 208, name, str(position))
    start = strip.x(stats.log_start)
    drawing.reach(start, strip.x(stats.last_stable), 224, "read_committed")
    drawing.reach(start, strip.x(stats.high_watermark), 262, "read_uncommitted")
    hanging.abort()
    away.rename(other)
    roots.works(str(other), "b")  # it is tried at once, not in a while
    for producer in waiting:
        producer.close()
    return drawing


def aborted(log: Log) -> Drawing:
    """What each level gives of a partition with a committed and an aborted transaction: the aborted set."""
    log.create_topic("t")
    first, second = log.begin_transaction(), log.begin_transaction()
    _send(log, "t", "plain")
    _send(log, "t", "T1 a", txn=first)
    _send(log, "t", "T2 a", txn=second)
    _send(log, "t", "T1 b", txn=first)
    first.commit()
    _send(log, "t", "T2 b", txn=second)
    second.abort()
    _send(log, "t", "plain")
    drawing = Drawing("An aborted set: the messages between a transaction's first position and its marker", 860, 230)
    entries = _entries(log, "t")
    strip = _Strip(drawing, entries, 160, 40)
    drawing.text(LEFT, 62, "stored", anchor="start")
    [row] = [row for row in log.metadata_table("transactions", "t").to_pylist() if row["state"] == "aborted"]
    first_at, marker = Position(**row["first_position"]), Position(**row["marker_position"])
    x1, x2 = strip.x(first_at) + GAP / 2, strip.x(marker) + STEP
    drawing.line(x1, 26, x2 - GAP, 26, "bad", arrow=True)
    drawing.text((x1 + x2) / 2, 18, f"aborted: T2, from {first_at} to its marker at {marker}", "bad", size=12)
    for y, level in ((118, "read_committed"), (172, "read_uncommitted")):
        seen = log.scan("t", level, columns=["__ledger_id", "__entry_id"]).read_all().to_pylist()
        drawing.text(LEFT, y + 22, level, anchor="start")
        for entry in entries:
            if {"__ledger_id": entry.position.ledger_id, "__entry_id": entry.position.entry_id} in seen:
                drawing.box(strip.x(entry.position) + GAP / 2, y, entry.text, entry.colour)
    return drawing


def cut(log: Log) -> Drawing:
    """A consistent cut: one partition's bound is lowered, so that no transaction is seen by half."""
    log.create_topic("t", partitions=2)
    _send(log, "t", "plain", partition=0)
    _send(log, "t", "plain", partition=1)
    hanging = log.begin_transaction()
    _send(log, "t", "T1 a", txn=hanging)
    with log.begin_transaction() as txn:
        _send(log, "t", "T2 a", txn=txn)
        _send(log, "t", "T2 b", partition=1, txn=txn)
    _send(log, "t", "plain", partition=1)
    ends = {number: position for (_, number), position in log.cut("t").positions.items()}
    drawing = Drawing("A consistent cut of two partitions", 640, 320)
    for number, top in ((0, 50), (1, 220)):
        strip = _Strip(drawing, _entries(log, "t", number), 130, top)
        drawing.text(LEFT, top + 22, f"partition {number}", anchor="start")
        stable = _of(log, "t", number).last_stable
        end = ends[number]
        if end == stable:
            drawing.bound(strip.x(end), top - 12, top + 42, "last_stable, the cut", str(end))
        else:
            drawing.bound(strip.x(stable), top - 12, top + 42, "last_stable", str(stable))
            drawing.bound(strip.x(end), top - 12, top + 42, "the cut", str(end))
        drawing.reach(130, strip.x(end), top + 68, "read_committed")
    hanging.abort()
    return drawing


def tiers(log: Log) -> Drawing:
    """Two tiers: which copies each ledger of a partition has."""
    log.create_topic("t")
    for number in range(4):
        txn = log.begin_transaction()
        _send(log, "t", "a", txn=txn)
        txn.abort() if number == 1 else txn.commit()
        if number < 3:
            log.roll_ledger("t")
        if number == 1:
            log.offload("t")
            log.delete_hot("t")
        if number == 2:
            log.offload("t")
    drawing = Drawing("Two tiers: the copies that each ledger has", 760, 200)
    columns = {}
    for index, ledger in enumerate(_of(log, "t").ledgers):
        x = 170 + index * 146
        columns[ledger.ledger_id] = x
        state = "closed" if ledger.closed else "open"
        drawing.text(x + 66, 28, f"ledger {ledger.ledger_id}, {state}")
        if "bookkeeper" in ledger.tiers:
            drawing.box(x, 46, "segments", "plain", width=132)
        if "tiered" in ledger.tiers:
            drawing.box(x, 96, "a Parquet file", "one", width=132)
    for path in sorted(Path(str(log.target.path)).rglob("*.aborted")):
        ledger_id = int(path.name.split("-")[1])
        drawing.box(columns[ledger_id], 146, "aborted messages", "aborted", width=132)
    drawing.text(LEFT, 68, "bookkeeper (hot)", anchor="start")
    drawing.text(LEFT, 118, "tiered", anchor="start")
    return drawing


def epoch(log: Log) -> Drawing:
    """An epoch: a seek begins a new one, and an acknowledgement from before it changes nothing."""
    log.create_topic("t")
    for name in ("m0", "m1", "m2", "m3"):
        _send(log, "t", name)
    drawing = Drawing("A seek begins a new epoch", 740, 270)
    with log.subscribe("t", "s", initial_position="earliest") as consumer:
        _Strip(drawing, _entries(log, "t"), 250, 20)
        drawing.text(LEFT, 42, "partition 0", anchor="start")
        y, got, x = 92, [], {}
        for index in range(3):
            message = consumer.receive(timeout=30)
            assert message is not None
            got.append(message)
            x[message.message_id] = 250 + index * STEP
            drawing.box(250 + index * STEP, y, message.value.decode(), "one")
        consumer.acknowledge(got[0])
        consumer.flush()
        before = log.subscription("t", "s")
        drawing.text(LEFT, y + 22, f"epoch {before.epoch}: received", anchor="start")
        drawing.text(250 + 3 * STEP + 8, y + 22, "m0 is acknowledged", "faint", anchor="start", size=12)
        consumer.seek("earliest")
        drawing.line(LEFT, y + 56, 720, y + 56, "bad")
        drawing.text(LEFT, y + 51, "seek to earliest", "bad", anchor="start")
        again = [consumer.receive(timeout=30) for _ in range(4)]
        consumer.acknowledge(got[1])
        consumer.flush()
        info = log.subscription("t", "s")
        y += 76
        drawing.text(LEFT, y + 22, f"epoch {info.epoch}: received", anchor="start")
        for index, message in enumerate(again):
            assert message is not None
            assert message.epoch == info.epoch
            drawing.box(250 + index * STEP, y, message.value.decode(), "one")
        drawing.text(
            LEFT, y + 62, f"acknowledging m1 of epoch {got[1].epoch} now: ignored and counted", "bad", anchor="start"
        )
        drawing.text(
            LEFT, y + 84, f"ignored acknowledgements: {info.ignored_acknowledgements}", "faint", anchor="start", size=12
        )
    return drawing


DRAWINGS: dict[str, Callable[[Log], Drawing]] = {
    "partition": partition, "bounds": bounds, "copies": copies, "aborted": aborted, "cut": cut, "tiers": tiers,
    "epoch": epoch,
}  # fmt: skip


def drawn() -> Iterator[tuple[str, str]]:
    """Yield the name and the SVG of each drawing, each of a log of its own."""
    for name, draw in DRAWINGS.items():
        with tempfile.TemporaryDirectory() as folder, txn_source.connect(Path(folder) / "log") as log:
            yield name, str(draw(log))


if __name__ == "__main__":
    PICTURES.mkdir(exist_ok=True)
    for name, text in drawn():
        (PICTURES / f"{name}.svg").write_text(text, encoding="utf-8")
