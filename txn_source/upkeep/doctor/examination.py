"""The examination of a log: all checks in turn, and what came of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from txn_source.model.errors import TxnLogError
from txn_source.storage.object_store import reason
from txn_source.upkeep.doctor.checks.clocks import check_publish_times, check_service_clock
from txn_source.upkeep.doctor.checks.database import (
    check_consumers,
    check_totals,
    check_transactions_table,
    check_waiting_files,
)
from txn_source.upkeep.doctor.checks.objects import check_objects
from txn_source.upkeep.doctor.checks.places import (
    check_disks,
    check_permissions,
    check_roots,
    check_targets,
    unreadable_files,
)
from txn_source.upkeep.doctor.checks.policies import check_policies
from txn_source.upkeep.doctor.checks.segments import (
    check_among_segments,
    check_segments,
    check_short_entries,
    check_unreferenced,
)
from txn_source.upkeep.doctor.checks.subscriptions import check_subscriptions
from txn_source.upkeep.doctor.checks.transactions import check_transactions
from txn_source.upkeep.doctor.findings import Finding, Report, Unchecked, capped, finding, in_order
from txn_source.upkeep.doctor.opening import Opened
from txn_source.upkeep.doctor.subject import Checksums, Subject


@dataclass(frozen=True, slots=True)
class Check:
    """A check by the name that the report has, and what it needs: the database, the files, the whole log."""

    name: str
    look: Callable[[Subject], Iterator[Finding]]
    database: bool = False
    files: bool = False
    whole: bool = False


CHECKS = (
    Check("roots", check_roots, files=True, whole=True),
    Check("targets of offloads", check_targets),
    Check("disk space", check_disks, whole=True),
    Check("permissions", check_permissions, whole=True),
    Check("transactions", check_transactions),
    Check("policies", check_policies),
    Check("subscriptions", check_subscriptions),
    Check("consumers and cursors", check_consumers, database=True, whole=True),
    Check("waiting files and offloads", check_waiting_files, database=True, whole=True),
    Check("publish times", check_publish_times, database=True, whole=True),
    Check("the service's clock", check_service_clock, whole=True),
    Check("states of transactions", check_transactions_table, database=True, whole=True),
    Check("totals and pages", check_totals, database=True, whole=True),
    Check("entries with too few copies", check_short_entries),
    Check("hot segments", check_segments, files=True),
    Check("files that nothing refers to", check_unreferenced, database=True, files=True, whole=True),
    Check("files among the segments", check_among_segments, files=True, whole=True),
    Check("tiered objects", check_objects),
)
"""All checks, the quick ones first."""


def examine(opened: Opened) -> Report:
    """Make all checks that can be made, and return what was found.

    Raises:
        TopicNotFoundError: one of the topics that were named isn't there.
    """
    findings, checked, not_checked = list(opened.findings), list(opened.checked), list(opened.not_checked)
    subject = opened.subject
    if subject is not None and subject.topics:
        subject.access.metadata.get_view(subject.topics)
    for check in CHECKS if subject is not None else ():
        assert subject is not None
        why = _why_not(check, subject)
        if why:
            not_checked.append(Unchecked(check.name, why))
            continue
        try:
            findings += check.look(subject)
            checked.append(check.name)
        except Exception as error:  # what a damaged database gives can be anything
            findings.append(_failed(check, error))
            not_checked.append(Unchecked(check.name, "it failed"))
    if subject is not None and subject.checksums is Checksums.NONE:
        not_checked.append(Unchecked("checksums", "--checksums none"))
    findings += unreadable_files(subject) if subject is not None else ()
    shown, log_id = ("", "") if subject is None else (subject.shown, subject.log_id)
    return Report(shown, log_id, in_order(capped(findings)), tuple(checked), tuple(not_checked))


def _why_not(check: Check, subject: Subject) -> str:
    if check.database and subject.service is None:
        return "it needs the database; run it where that is, with --root"
    if check.files and not subject.has_storage:
        return "the root can't be reached from here"
    if check.whole and subject.topics:
        return "it is about the whole log, and topics were named"
    return ""


def _failed(check: Check, error: Exception) -> Finding:
    if isinstance(error, TxnLogError):
        why = f"[TXNLOG_{error.code}] {error.fact.rstrip('.')}"
    else:
        why = reason(error) if isinstance(error, OSError) else f"{type(error).__name__}: {reason(error)}"
    return finding("check-failed", check.name, f"The check {check.name} could not be ended: {why}.", check=check.name)
