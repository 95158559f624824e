"""Mending what is safe to mend: what maintenance and garbage collection do anyway, and copies that have a sound other.

1. Each finding that can be mended has a step; steps are carried out once for all findings of their code.
2. A step goes by what it sees itself when it comes to it, not by what was found: the log goes on meanwhile.
3. A damaged copy is deleted only after every byte of the ledger's other copy was read and found right.
4. Then the log is examined once more: what isn't found any more was mended, whatever else is found is told.

An interruption leaves what was done, and the rest as it was; a repair can be run again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace

from txn_source.client.access import Access
from txn_source.client.target import metadata_url, open_service
from txn_source.client.tiering.hot_repair import reachable_places, repair_topic
from txn_source.client.tiering.offload import delete_doomed_files
from txn_source.client.tiering.segment_garbage import collect_garbage
from txn_source.metadata.service.in_process import InProcessTransport
from txn_source.metadata.stub.metadata_stub import MetadataStub
from txn_source.model.copies import LedgerCopies, Tier
from txn_source.model.errors import TopicNotFoundError, TxnLogError
from txn_source.model.topic_name import TopicName
from txn_source.model.transaction import TxnId
from txn_source.model.values import dataclass
from txn_source.storage.object_root import root_at
from txn_source.storage.object_store import ObjectStore
from txn_source.upkeep.doctor.checks.bytes import is_hot_sound
from txn_source.upkeep.doctor.checks.objects import damage_of, unreferenced_own
from txn_source.upkeep.doctor.codes import CODES, Severity
from txn_source.upkeep.doctor.examination import examine
from txn_source.upkeep.doctor.extent import Ledgers, copies_now
from txn_source.upkeep.doctor.findings import Finding, Report, in_order
from txn_source.upkeep.doctor.opening import Where, opened
from txn_source.upkeep.doctor.subject import DAY_S, Checksums, Options, Subject


@dataclass(frozen=True, slots=True)
class Step:
    """What a repair does about the findings of a code."""

    code: str
    what: str
    findings: tuple[Finding, ...]


@dataclass(frozen=True, slots=True)
class _Tools:
    """What steps work with: the log as everybody opens it, and a look at it that changes nothing."""

    access: Access
    looked_at: Subject | None

    @property
    def subject(self) -> Subject:
        """The look; there is none where tables were too old for one, and the step for these needs none."""
        assert self.looked_at is not None
        return self.looked_at


def steps_for(report: Report) -> list[Step]:
    """Return what a repair would do, in the order in which it does it."""
    found = []
    for code in _ACTIONS:
        mine = tuple(one for one in report.findings if one.code == code and _may_be_mended(one))
        if mine:
            found.append(Step(code, CODES[code].mended, mine))
    return found


def _may_be_mended(one: Finding) -> bool:
    """True unless it is about the only copy of something."""
    return one.severity is not Severity.ERROR and one.operands.get("own", True)


def repair(where: Where, report: Report, options: Options) -> Report:
    """Carry out the steps for a report, examine the log once more, and return what is left and what was mended."""
    steps = steps_for(report)
    if not steps:
        return report
    access = _to_change(where)
    try:
        with opened(where, **options) as log:
            for step in steps:
                _ACTIONS[step.code](_Tools(access, log.subject), step.findings)
    finally:
        access.close()
    with opened(where, **options) as log:
        after = examine(log)
    mended = [
        replace(one, mended=CODES[one.code].mended)
        for step in steps
        for one in step.findings
        if not any(one.is_like(other) for other in after.findings)
    ]
    return replace(after, findings=in_order([*mended, *after.findings]))


def _to_change(where: Where) -> Access:
    """Return a connection to the log as everybody opens it, PostgreSQL's included."""
    if where.root is None:
        return Access.open(where.target())
    url = None if where.metadata is None else metadata_url(where.metadata)
    service = open_service(where.root, url)
    stub = MetadataStub(InProcessTransport(service))
    try:
        stub.get_log()
        return Access(stub, root_at(where.root))
    except BaseException:
        stub.close()
        raise


def _look(tools: _Tools, _: Sequence[Finding]) -> None:
    """Look at the log: whoever does so upgrades the tables, and aborts transactions past their deadline."""
    tools.access.metadata.get_view([])


def _abort(tools: _Tools, findings: Sequence[Finding]) -> None:
    for one in findings:
        with suppress(TxnLogError):  # it may have ended meanwhile
            tools.access.metadata.end_transaction(TxnId.parse(one.operands["txn"]), commit=False, forced=True)


def _delete_doomed(tools: _Tools, _: Sequence[Finding]) -> None:
    while delete_doomed_files(tools.access):
        pass  # a page of them at a time


def _collect(tools: _Tools, _: Sequence[Finding]) -> None:
    now_s = tools.subject.now_s
    collect_garbage(tools.access, DAY_S, dry_run=False, clock=lambda: now_s)


def _delete_objects(tools: _Tools, _: Sequence[Finding]) -> None:
    store = ObjectStore(tools.access.root)
    for uri in list(unreferenced_own(tools.subject)):
        store.delete(uri)
    store.sync_deleted()


def _copy(tools: _Tools, findings: Sequence[Finding], *, verify: bool = False) -> None:
    places, _ = reachable_places(tools.access)
    for topic in _topics(findings):
        with suppress(TopicNotFoundError):
            repair_topic(tools.access, topic, places, verify=verify)


def _copy_checked(tools: _Tools, findings: Sequence[Finding]) -> None:
    _copy(tools, findings, verify=True)


def _drop_hot(tools: _Tools, findings: Sequence[Finding]) -> None:
    """Drop the hot copies of ledgers whose objects are sound in every byte."""

    def is_sound(topic: TopicName, partition_id: int, copies: LedgerCopies) -> bool:
        assert copies.tiered is not None
        try:
            return damage_of(tools.subject, copies.tiered, Checksums.ALL) is None
        except OSError:
            return False  # nothing is known of it now

    _drop(tools, findings, Tier.BOOKKEEPER, is_sound)


def _drop_tiered(tools: _Tools, findings: Sequence[Finding]) -> None:
    """Delete the objects of ledgers whose hot copies are sound in every byte."""

    def is_sound(topic: TopicName, partition_id: int, copies: LedgerCopies) -> bool:
        return is_hot_sound(tools.subject, topic, partition_id, copies.ledger_id)

    _drop(tools, findings, Tier.TIERED, is_sound)


def _drop(
    tools: _Tools,
    findings: Sequence[Finding],
    tier: Tier,
    other_is_sound: Callable[[TopicName, int, LedgerCopies], bool],
) -> None:
    stub = tools.access.metadata
    for one in findings:
        topic = TopicName.parse(one.operands["topic"])
        with suppress(TopicNotFoundError):
            ledgers = Ledgers(stub, topic)
            for ledger_id in one.operands["ledgers"]:
                partition_id = ledgers.partition_of.get(ledger_id)
                copies = None if partition_id is None else copies_now(stub, partition_id, ledger_id)
                if partition_id is None or copies is None or not copies.hot or copies.tiered is None:
                    continue  # trimmed, or one of its copies deleted, meanwhile
                if other_is_sound(topic, partition_id, copies):
                    stub.delete_copies(topic, tier, [ledger_id])
    delete_doomed_files(tools.access)


def _topics(findings: Sequence[Finding]) -> list[TopicName]:
    return [TopicName.parse(name) for name in sorted({one.operands["topic"] for one in findings})]


_ACTIONS: dict[str, Callable[[_Tools, Sequence[Finding]], None]] = {
    "schema-old": _look,
    "transaction-overdue": _look,
    "transaction-fenced": _abort,
    "copies-few": _copy,
    "copy-missing": _copy,
    "entries-short": _copy,
    "copy-damaged": _copy_checked,
    "segment-missing": _drop_hot,
    "segment-short": _drop_hot,
    "segment-damaged": _drop_hot,
    "object-missing": _drop_tiered,
    "object-damaged": _drop_tiered,
    "offload-stuck": _delete_doomed,
    "doomed-old": _delete_doomed,
    "segment-unreferenced": _collect,
    "object-unreferenced": _delete_objects,
}
"""What is done about each kind of finding, in this order."""
