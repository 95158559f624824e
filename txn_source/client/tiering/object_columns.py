"""The columns of tiered objects."""

from __future__ import annotations

import pyarrow as pa

from txn_source.client.reading.columns import METADATA_COLUMNS, STORED_AS
from txn_source.storage.schema import stored_beside

OBJECT_COLUMNS = (
    "__partition",
    "__ledger_id",
    "__entry_id",
    "__batch_index",
    "__publish_time",
    "__producer_name",
    "__sequence_id",
    "__txn_id",
    "__txn_status",
)


def offloaded_schema(payload: pa.Schema) -> pa.Schema:
    """Return the columns of a read of all that an object has."""
    return pa.schema([*payload, *stored_beside(payload), *(METADATA_COLUMNS[name] for name in OBJECT_COLUMNS)])


def object_schema(payload: pa.Schema) -> pa.Schema:
    """Return the same columns by their names in objects."""
    return pa.schema([field.with_name(STORED_AS.get(field.name, field.name)) for field in offloaded_schema(payload)])
