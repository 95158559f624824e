"""Strips as JSON: a partition to scale, with no more pieces than can be told apart."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from txn_source.metadata.store.figures import PartitionFigures
from txn_source.metadata.store.strips import DrawnLedger, DrawnTransaction, Strip
from txn_source.model.transaction import id_of

Piece = dict[str, Any]


def drawn(part: PartitionFigures, strip: Strip, first: int | None, most: int) -> Piece:
    """Return a partition's strip; ``first`` is the transaction that its readers wait for, ``most`` bounds each list."""
    start = part.messages_trimmed
    ledgers = [_older(strip)] if strip.older_ledgers else []
    ledgers += [ledger_of(ledger) for ledger in strip.ledgers]
    running = [{**_transaction(txn), "is_first": txn.txn == first} for txn in strip.open]
    return {
        "from": start,
        "to": part.messages,
        "ledgers": [_cut(piece, start) for piece in _merged(ledgers, most, _kind)],
        "open": [_cut(piece, start) for piece in _merged(running, most, lambda piece: piece["is_first"])],
        "more_open": strip.more_open,
        "aborted": [_cut(piece, start) for piece in _merged(map(_transaction, strip.aborted), most, lambda _: None)],
        "more_aborted": strip.more_aborted,
        "stable": part.messages_before_stable,
        "high": part.messages_before_high,
    }


def ledger_of(ledger: DrawnLedger) -> Piece:
    """Return a ledger."""
    return {
        "id": ledger.ledger_id,
        "from": ledger.messages_before,
        "to": ledger.messages_before + ledger.messages,
        "state": "closed" if ledger.closed else "open",
        "hot": ledger.hot,
        "tiered": ledger.uri is not None,
        "entries": ledger.entries,
        "messages": ledger.messages,
        "bytes": ledger.bytes,
        "tier_uri": ledger.uri,
    }


def _older(strip: Strip) -> Piece:
    end = strip.ledgers[0].messages_before
    kind = {"state": "closed", "hot": None, "tiered": None, "entries": None, "bytes": None, "tier_uri": None}
    extent = {"from": strip.older_start, "to": end, "messages": end - strip.older_start}
    return {"id": None, **extent, "merged": strip.older_ledgers, **kind}


def _transaction(txn: DrawnTransaction) -> Piece:
    return {"txn": str(id_of(txn.txn)), "from": txn.start, "to": max(txn.start, txn.end), "messages": txn.messages}


def _kind(ledger: Piece) -> Any:
    return ledger["state"], ledger["hot"], ledger["tiered"]


def _merged(pieces: Iterable[Piece], most: int, kind: Callable[[Piece], Any]) -> list[Piece]:
    """Return the pieces; if there are more than ``most``, neighbours of a kind become one, with how many it stands for.

    Of many kinds that take turns more may be left.
    """
    found = sorted(pieces, key=lambda piece: piece["from"])
    if len(found) <= most:
        return found
    at_once = -(-len(found) // most)
    made: list[Piece] = []
    for piece in found:
        last = made[-1] if made else None
        if last is not None and kind(last) == kind(piece) and last.get("merged", 1) < at_once:
            made[-1] = {**last, "to": max(last["to"], piece["to"]), "merged": last.get("merged", 1) + 1}
            for name in ("entries", "messages", "bytes"):
                if last.get(name) is not None:
                    made[-1][name] = last[name] + piece[name]
        else:
            made.append(piece)
    return made


def _cut(piece: Piece, start: int) -> Piece:
    """Cut off what was trimmed."""
    return {**piece, "from": max(piece["from"], start), "to": max(piece["to"], start)}
