"""Requests that nobody should send: real ones of a log under test, bent, and others made up from the descriptors.

Everything is drawn from a ``random.Random``: Hypothesis has one that it can shrink, and a long run takes a plain one.
"""

from __future__ import annotations

import sqlite3
import uuid
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message

from tests.log.sites import ManualClock, service_over
from txn_source import Log, connect
from txn_source._generated.txnlog.v1 import metadata_service_pb2 as pb
from txn_source.client.writing.bulk_writer import BulkWriter
from txn_source.metadata.service.service import MetadataService
from txn_source.metadata.stub.metadata_stub import MetadataStub
from txn_source.model.spark_commit import Sink
from txn_source.model.topic_name import TopicName

METHODS = pb.DESCRIPTOR.services_by_name["MetadataService"].methods
UNARY = {m.name: getattr(pb, m.input_type.name) for m in METHODS if not m.client_streaming}

_EDGES = (0, 1, -1, 2, 7, 8, 1 << 20, (1 << 31) - 1, 1 << 31, 1 << 32, 1 << 40, 1 << 62, (1 << 63) - 1, -(1 << 63))
_TEXTS = (
    "", " ", "x", "orders", "public/default", "persistent://public/default/orders", "..", "../victim.txt",
    "/etc/passwd", "metadata.db", "txnlog.json", "segments", "a\nb", "a\x00b", "\u202e", "é" * 300, "x" * 100_000,
    "exclusive", "shared", "failover", "read_committed", "read_uncommitted", "earliest", "latest", "bookkeeper",
    "tiered", "s3://b/c", "file:///etc/ledger-1-abcdefabcdef.parquet", "retention_age",
    "offload_uri", "1", "-1", "1e400", "nan",
)  # fmt: skip


class Recording:
    """A transport to a service in this process that keeps a copy of every request."""

    timeout_s = 30.0

    def __init__(self, service: MetadataService) -> None:
        self.service = service
        self.seen: list[tuple[str, Message]] = []
        self.consumed: list[Message] = []

    def call(self, method: str, request: Message) -> Any:
        self.seen.append((method, _copy(request)))
        return self.service.call(method, request)

    def converse(self, method: str, requests: Iterator[Any]) -> Iterator[Any]:
        def noting() -> Iterator[Any]:
            for request in requests:
                self.consumed.append(_copy(request))
                yield request

        yield from self.service.converse(method, noting())

    def open(self) -> tuple[MetadataStub, str]:
        """Do what ``Target.open`` does."""
        stub = MetadataStub(self)
        return stub, stub.get_log().storage_uri

    def close(self) -> None:
        """Leave the service open: it is the test's."""


class Subject:
    """A log in which everything has happened once, the requests that did it, and files that nobody may touch."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / "log"
        connect(self.root).close()
        self.clock = ManualClock()
        self.service = service_over(self.root, self.clock)
        self.transport = Recording(self.service)
        self.log = Log(self.transport)  # type: ignore[arg-type]
        self._live(self.log)
        self.requests, self.consumed = list(self.transport.seen), list(self.transport.consumed)
        self.numbers = sorted({n for _, r in self.requests for n in _numbers(r)} | set(_EDGES))
        self.texts = sorted({t for _, r in self.requests for t in _strings(r)} | set(_TEXTS))
        self.victims = [folder / "victim.txt", self.root / "victim.txt", self.root / "tiered" / "victim.parquet"]
        for victim in self.victims:
            victim.parent.mkdir(exist_ok=True)
            victim.write_text("mine")
        self.victims += [self.root / "txnlog.json", self.root / "metadata.db"]
        self._raw = sqlite3.connect(self.root / "metadata.db")

    def close(self) -> None:
        """Close log and service."""
        self.log.close()
        self.service.close()
        self._raw.close()

    def version(self) -> object:
        """Return what is another one after each change of the database."""
        return self._raw.execute("PRAGMA data_version").fetchone()

    def check_usable(self) -> None:
        """Every topic takes messages and a roll, is read, described and maintained; no victim was touched."""
        for name in self.log.topics():
            before = self.log.stats(name)
            with self.log.producer(name) as producer:
                payload = self.log.schema(name)
                if payload.names == ["key", "value"]:
                    producer.send(b"still here")
                else:
                    producer.send_batch(pa.table([pa.nulls(1, field.type) for field in payload], payload.names))
            self.log.roll_ledger(name)
            assert len(self.log.stats(name).ledgers) >= len(before.ledgers)
            for subscription in self.log.subscriptions(name):
                assert all(partition.backlog >= 0 for partition in subscription.partitions)
        self.log.transactions(state=None)
        self.log.collect_garbage(older_than=0)
        self.log.maintain()
        assert all(victim.exists() for victim in self.victims)

    def check_reads(self) -> None:
        """What was written by our own client is read at both levels, unless its topic is gone."""
        name = "kept"
        self.log.create_topic(name)
        with self.log.producer(name) as producer:
            producer.send(b"kept")
        for level in ("read_committed", "read_uncommitted"):
            assert self.log.scan(name, level).read_all()["value"].to_pylist() == [b"kept"]
        self.log.delete_topic(name)

    def _live(self, log: Log) -> None:
        log.create_topic("orders", partitions=2, retention_age=1e6)
        log.create_topic("bills", schema=pa.schema([("n", pa.int64())]))
        log.update_topic("bills", 2)
        log.set_policies("orders", data_read_priority="bookkeeper-first", offload_compression_level=2)
        log.get_data_read_priority("orders", applied=True)
        for transactional_id in (None, "tellers", "tellers"):
            with log.producer("orders", transactional_id) as producer:
                producer.send(b"plain", key="k")
                with log.begin_transaction() as txn:
                    producer.send(b"debit", key="alice", txn=txn)
                    producer.send(b"credit", key="bob", txn=txn)
        aborted = log.begin_transaction()
        aborted_id = aborted.id
        aborted.abort()
        log.abort_transaction(aborted_id)
        writer = BulkWriter(log.access, TopicName.parse("orders"))
        writer.write(pa.record_batch({"value": [b"job"]}))
        log.metadata.commit_batch(Sink("query", 3, "spark", None), [writer.finish()], "a job")
        log.create_subscription("orders", "booking", "shared", "read_committed", "earliest")
        with log.subscribe("orders", "audit", "exclusive", "read_uncommitted", "earliest") as consumer:
            message = consumer.receive(timeout=30)
            assert message is not None
            consumer.acknowledge(message)
            consumer.flush()
            with log.begin_transaction() as txn:
                message = consumer.receive(timeout=30)
                assert message is not None
                txn.acknowledge(message)
            consumer.seek("earliest")
        log.seek("orders", "audit", "latest")
        log.roll_ledger("orders")
        log.offload("orders")
        log.delete_hot("orders")
        log.trim("orders", older_than=1e5)
        log.set_policies(retention_bytes=1 << 40)
        log.scan("orders").read_all()
        log.stats("orders")
        log.transactions(state=None, oldest_first=True)
        log.collect_garbage(older_than=0)
        self.hanging = log.begin_transaction(timeout=600)
        with log.producer("orders") as producer:
            producer.send(b"open", txn=self.hanging.id)


class Bending:
    """Draws requests."""

    def __init__(self, random: Random, subject: Subject) -> None:
        self._random = random
        self._subject = subject

    def request(self) -> tuple[str, Message]:
        """Return a method and a request: a real one, bent in a few places, or one that is made up."""
        if self._random.random() < 0.7:
            method, known = self._random.choice(self._subject.requests)
            request = _copy(known)
            self.bend(request)
        else:
            method = self._random.choice(sorted(UNARY))
            request = UNARY[method]()
            self.fill(request, 3)
        self.name(request)
        return method, request

    def name(self, request: Any) -> None:
        """Give a request that has an id mostly a new one."""
        if "request_id" in request.DESCRIPTOR.fields_by_name and self._random.random() < 0.9:
            request.request_id = uuid.UUID(int=self._random.getrandbits(128)).hex

    def conversation(self) -> list[Message]:
        """Return what a consumer says: mostly a subscription first, then anything."""
        said = [_copy(self._random.choice(self._subject.consumed)) for _ in range(self._random.randint(0, 4))]
        for request in said:
            if self._random.random() < 0.8:
                self.bend(request)
        if self._random.random() < 0.2:
            made_up = pb.ConsumeRequest()
            self.fill(made_up, 3)
            said.append(made_up)
        first = _copy(next(r for r in self._subject.consumed if r.WhichOneof("what") == "subscribe"))  # type: ignore[attr-defined]
        if self._random.random() < 0.3:
            self.bend(first)
        return [first, *said]

    def raw(self, request: Message) -> bytes:
        """Return a request's bytes, damaged."""
        data = bytearray(request.SerializeToString())
        for _ in range(self._random.randint(1, 4)):
            at = self._random.randint(0, len(data))
            match self._random.randint(0, 3):
                case 0:
                    data[at:at] = self._random.randbytes(self._random.randint(1, 9))
                case 1:
                    del data[at : at + self._random.randint(1, 9)]
                case 2 if at < len(data):
                    data[at] ^= 1 << self._random.randint(0, 7)
                case _:
                    data += data[at : at + 40]
        return bytes(data)

    def bend(self, message: Message) -> None:
        """Change one to three fields anywhere in a message."""
        for _ in range(self._random.randint(1, 3)):
            parts = list(_parts(message))
            part = self._random.choice(parts)
            fields = part.DESCRIPTOR.fields
            if fields:
                self._set(part, self._random.choice(fields), 2)

    def fill(self, message: Message, depth: int) -> None:
        """Set most fields of a message."""
        for field in message.DESCRIPTOR.fields:
            if self._random.random() < 0.8:
                self._set(message, field, depth)

    def _set(self, message: Any, field: FieldDescriptor, depth: int) -> None:
        if self._random.random() < 0.15:
            message.ClearField(field.name)
        elif field.message_type is not None and field.message_type.GetOptions().map_entry:
            of = field.message_type.fields_by_name
            found = getattr(message, field.name)
            for _ in range(self._random.randint(0, 3)):
                found[self._value(of["key"])] = self._value(of["value"])
        elif field.is_repeated:
            items = getattr(message, field.name)
            if items and self._random.random() < 0.3:
                items.append(items[0]) if field.message_type is None else items.add().CopyFrom(items[0])
                return
            for _ in range(self._random.randint(0, 3)):
                if field.message_type is None:
                    items.append(self._value(field))
                elif depth:
                    self.fill(items.add(), depth - 1)
        elif field.message_type is not None:
            if depth:
                self.fill(getattr(message, field.name), depth - 1)
        else:
            setattr(message, field.name, self._value(field))

    def _value(self, field: FieldDescriptor) -> Any:
        random, kind = self._random, field.cpp_type
        if kind == FieldDescriptor.CPPTYPE_BOOL:
            return random.random() < 0.5
        if kind == FieldDescriptor.CPPTYPE_STRING and field.type == FieldDescriptor.TYPE_BYTES:
            return self._bytes()
        if kind == FieldDescriptor.CPPTYPE_STRING:
            return self._text()
        number = random.choice(self._subject.numbers)
        if random.random() < 0.4:
            number += random.choice((-8, -1, 1, 3, 8, 64))
        bits = 64 if kind in (FieldDescriptor.CPPTYPE_INT64, FieldDescriptor.CPPTYPE_UINT64) else 32
        number &= (1 << bits) - 1
        signed = kind in (FieldDescriptor.CPPTYPE_INT64, FieldDescriptor.CPPTYPE_INT32, FieldDescriptor.CPPTYPE_ENUM)
        return number - (1 << bits) if signed and number >> (bits - 1) else number

    def _text(self) -> str:
        text = self._random.choice(self._subject.texts)
        if self._random.random() < 0.4:
            at = self._random.randint(0, len(text))
            text = text[:at] + self._random.choice(("", "..", "/", "0", "a", "%2e", "\x7f", "-")) + text[at + 1 :]
        return text

    def _bytes(self) -> bytes:
        data = bytearray(pa.schema([("n", pa.int64()), ("t", pa.list_(pa.string()))]).serialize().to_pybytes())
        for _ in range(self._random.randint(0, 3)):
            data[self._random.randrange(len(data))] = self._random.randrange(256)
        return bytes(data[: self._random.choice((len(data), 9, 0))])


def _copy(message: Any) -> Any:
    other = type(message)()
    other.CopyFrom(message)
    return other


def _parts(message: Any) -> Iterator[Any]:
    """Yield a message and all messages in it."""
    yield message
    for field, value in message.ListFields():
        if field.message_type is not None and not field.message_type.GetOptions().map_entry:
            for part in value if field.is_repeated else [value]:
                yield from _parts(part)


def _scalars(message: Any) -> Iterator[Any]:
    for part in _parts(message):
        for field, value in part.ListFields():
            if field.message_type is None:
                yield from value if field.is_repeated else [value]
            elif field.message_type.GetOptions().map_entry:
                yield from [*value.keys(), *value.values()]


def _numbers(message: Message) -> Iterator[int]:
    return (int(value) for value in _scalars(message) if isinstance(value, int))


def _strings(message: Message) -> Iterator[str]:
    return (value for value in _scalars(message) if isinstance(value, str))


def every_message(described: Descriptor, seen: dict[str, Descriptor] | None = None) -> dict[str, Descriptor]:
    """Return a message's descriptor and those of all messages in it, by full name; maps' entries are left out."""
    seen = {} if seen is None else seen
    if described.full_name not in seen and not described.GetOptions().map_entry:
        seen[described.full_name] = described
        for field in described.fields:
            if field.message_type is not None:
                every_message(field.message_type, seen)
    return seen
