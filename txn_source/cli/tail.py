"""Reading a topic of our own log from where the last read stopped: what ``txnlog consume --follow`` repeats."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import pyarrow as pa

from txn_source.client.log import Log
from txn_source.client.reading.columns import select_columns
from txn_source.client.reading.count import count
from txn_source.client.reading.own_log import OwnLog
from txn_source.client.reading.source import Source
from txn_source.reading.follow import Follower
from txn_source.reading.request import ReadRequest, Selection


def tail(log: Log, topic: str, request: ReadRequest, columns: Sequence[str] | None = None) -> Follower[Source]:
    """Return a place in a topic, at first where a request starts; columns: None for the whole payload."""

    def schema(look: Source) -> pa.Schema:
        return select_columns(look.payload, columns or look.payload.names)

    return Follower(OwnLog(log.access), Selection.of(topic), request, schema, partial(count, log.access))
