"""What an examination gives: findings, and what was and wasn't looked at."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from txn_source.upkeep.doctor.codes import CODES, Severity

REPORT_VERSION = 1
"""Of the JSON document. Fields are added in a version; a change of what one means is a new version."""
_ORDER = tuple(Severity)
_MOST_ALIKE = 20
MOST_SHOWN = 20
"""So many paths are told of what may be many files."""


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that is wrong, or good to know: its code, what it is about, and the fact with its operands.

    ``operands`` are the values that the fact names, for programs.
    """

    severity: Severity
    code: str
    subject: str
    fact: str
    remedy: str
    operands: Mapping[str, Any] = field(default_factory=dict)

    @property
    def is_open(self) -> bool:
        """True if somebody has to do something."""
        return self.severity is not Severity.NOTE


def finding(code: str, subject: str, fact: str, severity: Severity | None = None, **operands: Any) -> Finding:
    """Return a finding; ``severity`` is its code's unless it is given, and the remedy is made with the operands."""
    kind = CODES[code]
    return Finding(severity or kind.severity, code, subject, fact, kind.remedy_for(operands), operands)


def some_files(paths: Sequence[str]) -> dict[str, Any]:
    """Return the operands that tell of files: how many there are, and the first of them by name."""
    return {"files": len(paths), "first": sorted(paths)[:MOST_SHOWN]}


@dataclass(frozen=True, slots=True)
class Unchecked:
    """A check that was not made, and why."""

    check: str
    why: str


@dataclass(frozen=True, slots=True)
class Report:
    """The outcome of an examination: findings, the worst first, and the checks that were made and weren't."""

    log: str
    log_id: str
    findings: tuple[Finding, ...]
    checked: tuple[str, ...]
    not_checked: tuple[Unchecked, ...]

    @property
    def is_clean(self) -> bool:
        """True if nobody has to do anything; notes are allowed."""
        return not any(one.is_open for one in self.findings)

    def count(self, severity: Severity) -> int:
        """Return how many findings are of a severity."""
        return sum(one.severity is severity for one in self.findings)

    def document(self) -> dict[str, Any]:
        """Return the report as one JSON document."""
        return {
            "version": REPORT_VERSION,
            "log": self.log,
            "log_id": self.log_id,
            "clean": self.is_clean,
            "summary": {f"{severity.value}s": self.count(severity) for severity in Severity},
            "findings": [
                {
                    "severity": one.severity.value,
                    "code": one.code,
                    "subject": one.subject,
                    "fact": one.fact,
                    "remedy": one.remedy,
                    "operands": dict(one.operands),
                    "mended": None,  # an older release's doctor repaired
                }
                for one in self.findings
            ],
            "checked": list(self.checked),
            "not_checked": [{"check": one.check, "why": one.why} for one in self.not_checked],
        }


def capped(findings: Iterable[Finding]) -> list[Finding]:
    """Return findings, those beyond so many of one code and subject put into one, as of a disk that is lost."""
    groups: dict[tuple[str, str, Severity], list[Finding]] = {}
    for one in findings:
        groups.setdefault((one.code, one.subject, one.severity), []).append(one)
    found: list[Finding] = []
    for group in groups.values():
        found += group[:_MOST_ALIKE]
        more = group[_MOST_ALIKE:]
        if len(more) == 1:
            found += more
        elif more:
            ledgers = sorted({id_ for one in more for id_ in one.operands.get("ledgers", ())})
            operands = {**more[0].operands, "more": len(more), "ledgers": ledgers}
            fact = f"{len(more):,} more such; the first of them: {more[0].fact}"
            found.append(replace(more[0], fact=fact, operands=operands))
    return found


def in_order(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Return findings, the worst first, those of a code together."""
    return tuple(sorted(findings, key=lambda one: (_ORDER.index(one.severity), one.code, one.subject, one.fact)))
