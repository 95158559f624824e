"""What a stream keeps of a topic besides the position that it has come to, in its checkpoint.

Objects alone don't say which ledger follows another one, and a ledger that couldn't be offloaded may come after later
ones. So a stream notes which ledgers it has passed, and where it stands at a ledger's end which one comes next, as far
as the managed ledger's list or the broker's numbers of messages tell.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from txn_source.foreign.pulsar.listing import TopicLedgers
from txn_source.foreign.pulsar.summary import LedgerSummary
from txn_source.model.position import Position

PASSED = 256
"""So many of the ledgers that were passed last are noted."""
_LEDGERS, _COMPLETE, _END, _NEXT, _INDEX = "ledgers", "complete", "end", "next", "index"


def trace_of(at: Position, ledgers: TopicLedgers, known: Mapping[int, LedgerSummary]) -> dict[str, Any]:
    """Return what is noted at a position, for JSON.

    ``ledgers`` are the last ones that begin below it, and ``complete`` is true if there were no others. ``end`` is
    ``ledger`` at the end of one, and ``log`` at that of the last one that was there; then ``next`` is the ledger behind
    it, and ``index`` the broker's number of the next message, if they are known.
    """
    passed = [ledger for ledger in ledgers.ledgers if Position(ledger.ledger_id, 0) < at]
    found: dict[str, Any] = {}
    if not ledgers.listed:
        found |= {_LEDGERS: [ledger.ledger_id for ledger in passed[-PASSED:]], _COMPLETE: len(passed) <= PASSED}
    if passed and at == Position(passed[-1].ledger_id, passed[-1].entries):
        behind = [ledger.ledger_id for ledger in ledgers.ledgers[len(passed) :]]
        found[_END] = "ledger" if behind else "log"
        if ledgers.listed and (behind or ledgers.next_ledger is not None):
            found[_NEXT] = behind[0] if behind else ledgers.next_ledger
        last = known.get(at.ledger_id)
        if last is not None and last.next_index >= 0:
            found[_INDEX] = last.next_index
    return found


def follows(trace: Mapping[str, Any], ledger_id: int, first_index: int) -> bool:
    """True if a ledger, with the broker's number of its first message, is the next one behind what was read."""
    if _END not in trace:
        return False
    return ledger_id == trace.get(_NEXT) or (first_index >= 0 and first_index == trace.get(_INDEX))


def late_ledgers(trace: Mapping[str, Any], at: Position, ledgers: TopicLedgers) -> list[int]:
    """Return the ledgers below a position that weren't there when it was noted, as far as the note goes back."""
    if _LEDGERS not in trace:
        return []
    passed: Sequence[int] = trace[_LEDGERS]
    first = 0 if trace.get(_COMPLETE) else min(passed, default=at.ledger_id)
    below = [ledger.ledger_id for ledger in ledgers.ledgers if Position(ledger.ledger_id, 0) < at]
    return [ledger for ledger in below if ledger >= first and ledger not in passed]
