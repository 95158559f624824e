"""Tables about a log, for those who query it."""

from __future__ import annotations

from typing import Literal

import pyarrow as pa

from txn_source.metadata.stub.metadata_stub import MetadataStub
from txn_source.model.topic_name import TopicName
from txn_source.storage.log_tables import LOG_TABLES, check_table

TableName = Literal["transactions", "ledgers", "subscriptions", "partitions"]


def metadata_table(stub: MetadataStub, name: str, topic: str | None) -> pa.Table:
    """Return a table; ``Log.metadata_table`` has the arguments' meaning."""
    name = check_table(name)
    found = stub.read_table(name, None if topic is None else TopicName.parse(topic))
    return found.select(LOG_TABLES[name].names)  # a newer service may have more
