"""An Iceberg table that shows a topic: making it, what it has, and changing that in one step. The only one that knows
PyIceberg, which is optional.
"""

from __future__ import annotations

import functools
import re
import uuid
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar
from urllib.parse import parse_qsl

import pyarrow as pa
import pyarrow.parquet as pq
import pyarrow.types as types

from txn_source.model.errors import (
    InvalidArgumentError,
    SchemaMismatchError,
    StorageWriteError,
    TxnLogError,
    UnavailableError,
)
from txn_source.storage.object_root import Root, located
from txn_source.storage.object_uri import BUCKETS, parts_of, store_of

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.io import FileIO
    from pyiceberg.manifest import DataFile
    from pyiceberg.table import Table

P = ParamSpec("P")
R = TypeVar("R")
LOG_ID, TOPIC, TOPIC_ID = "txnlog.log-id", "txnlog.topic", "txnlog.topic-id"
"""The table's properties that say what it shows. A topic that was made anew has another id."""
CUT = "txnlog.cut"
"""The snapshot's property that says up to where it shows the topic."""
_RETRIES = "commit.retry.num-retries"
_IN_PATHS = re.compile("[#?%]")
_S3_PROPERTIES = {
    "region": "s3.region",
    "connect_timeout": "s3.connect-timeout",
    "request_timeout": "s3.request-timeout",
}


@dataclass(frozen=True, slots=True)
class Owner:
    """Which topic a table shows."""

    log_id: str
    topic: str
    topic_id: int

    @property
    def properties(self) -> dict[str, str]:
        """As the table's properties."""
        return {LOG_ID: self.log_id, TOPIC: self.topic, TOPIC_ID: str(self.topic_id)}


def open_catalog(catalog: Any) -> Catalog:
    """Return a PyIceberg catalog: itself, one by the name that PyIceberg's configuration has, or one of properties,
    its ``name`` among them if that isn't ``default``.

    Raises:
        InvalidArgumentError: PyIceberg isn't installed, or has no such catalog.
    """
    try:
        from pyiceberg.catalog import Catalog, load_catalog
    except ImportError:
        raise InvalidArgumentError("The export needs PyIceberg.", "Install txn-source[iceberg].") from None
    if isinstance(catalog, Catalog):
        return catalog
    if not isinstance(catalog, str | Mapping):
        raise InvalidArgumentError(
            f"{catalog!r:.80} is no catalog.", "Give a PyIceberg catalog, the name of one, or a catalog's properties."
        )
    try:
        if isinstance(catalog, str):
            return load_catalog(catalog)
        return load_catalog(**{"name": "default", **catalog})
    except Exception as error:
        what = catalog if isinstance(catalog, str) else ", ".join(sorted(catalog))  # values may be secrets
        raise InvalidArgumentError(
            f"The Iceberg catalog ({what}) can't be opened: {_text(error)}.",
            "Give its properties, as for pyiceberg.catalog.load_catalog: type, uri, warehouse.",
        ) from error


def check_types(schema: pa.Schema) -> None:
    """Raise SCHEMA_MISMATCH for a column that Iceberg has no type for, or whose Parquet form it doesn't read."""
    for field in schema:
        if (refused := _refused(field.type)) is not None:
            raise SchemaMismatchError(
                f"Column {field.name!r} is {refused}, which Iceberg can't have.",
                "Export a topic without such columns: of times, Iceberg has microseconds, in UTC or without a zone.",
            )


def _told(method: Callable[P, R]) -> Callable[P, R]:
    """Let what PyIceberg, its catalog or its store raise be told as the table's being out of reach."""

    @functools.wraps(method)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return method(*args, **kwargs)
        except TxnLogError:
            raise
        except Exception as error:
            raise UnavailableError(
                f"The Iceberg table can't be read or changed: {_text(error)}.",
                "Check the catalog and the table's store, then try again: what was done counts once.",
            ) from error

    return call


class ShownTable:
    """One look at an Iceberg table, and the next step from there: nothing is changed if somebody else was faster."""

    def __init__(self, table: Table) -> None:
        self._table = table
        self._stores: dict[str, FileIO] = {}
        self.files: dict[str, DataFile] = {task.file.file_path: task.file for task in table.scan().plan_files()}
        """The data files of the current snapshot, by location."""

    @classmethod
    @_told
    def open(cls, catalog: Catalog, name: str, schema: pa.Schema, owner: Owner) -> ShownTable:
        """Return a table, made if it isn't there, with its namespace.

        Raises:
            InvalidArgumentError: it is there, and shows something else.
            SchemaMismatchError: a column can't be.
        """
        from pyiceberg.exceptions import NoSuchTableError, TableAlreadyExistsError

        if "." not in name.strip("."):
            raise InvalidArgumentError(f"{name!r} names no Iceberg table.", "Use <namespace>.<table>.")
        try:
            table = catalog.load_table(name)
        except NoSuchTableError:
            catalog.create_namespace_if_not_exists(name.rpartition(".")[0])
            with suppress(TableAlreadyExistsError):
                catalog.create_table(
                    name, schema, properties={**owner.properties, _RETRIES: "0", "format-version": "2"}
                )
            table = catalog.load_table(name)
        found = {key: table.properties.get(key) for key in owner.properties}
        if found != owner.properties:
            shows = f"{found[TOPIC]} of another log, or before it was made anew" if found[TOPIC] else "something else"
            raise InvalidArgumentError(
                f"The Iceberg table {name} is there and shows {shows}.", "Give another name, or drop the table."
            )
        if table.properties.get(_RETRIES) != "0":  # a commit that PyIceberg repeats could add what others have added
            with table.transaction() as change:
                change.set_properties({_RETRIES: "0"})
        if not {*schema.names} <= {field.name for field in table.schema().fields}:
            with table.update_schema() as columns:  # the table of an older release has no column __key
                columns.union_by_name(schema)
        return cls(catalog.load_table(name))

    @property
    def cut(self) -> str | None:
        """Up to where the current snapshot shows the topic; None: there is no snapshot of ours."""
        snapshot = self._table.current_snapshot()
        return None if snapshot is None or snapshot.summary is None else snapshot.summary.get(CUT)

    @property
    def snapshot_id(self) -> int | None:
        """The current snapshot's id."""
        snapshot = self._table.current_snapshot()
        return None if snapshot is None else snapshot.snapshot_id

    @_told
    def object_file(self, uri: str, root: Root) -> DataFile:
        """Describe a tiered object as a data file, from its footer."""
        uri = located(root, uri)
        store = store_of(uri)
        if store not in self._stores:
            self._stores[store] = _io(uri, self._table)
        return self._data_file(self._stores[store], location(uri, root))

    def write_file(self, name: str, batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> DataFile:
        """Write a data file of the table's own; its name is made unique.

        Raises:
            StorageWriteError: the table's store refused.
        """
        path = f"{self._table.location().rstrip('/')}/data/{name}-{uuid.uuid4().hex[:12]}.parquet"
        try:
            with (
                self._table.io.new_output(path).create() as sink,
                pq.ParquetWriter(pa.PythonFile(sink, "w"), schema, compression="zstd") as writer,
            ):
                for batch in batches:
                    writer.write_batch(batch)
            return self._data_file(self._table.io, path)
        except (OSError, pa.ArrowException) as error:
            raise StorageWriteError(
                f"{path} can't be written: {_text(error)}. The table wasn't changed.",
                "Check the table's location and the catalog's credentials, then try again.",
            ) from error

    def discard(self, paths: Iterable[str]) -> None:
        """Delete files that were written for a step that didn't come about."""
        for path in paths:
            with suppress(OSError, pa.ArrowException):
                self._table.io.delete(path)

    @_told
    def change(
        self, added: Iterable[DataFile], removed: Iterable[DataFile], properties: Mapping[str, str]
    ) -> int | None:
        """Make the next snapshot, and return its id; None: somebody else has made one since the look."""
        from pyiceberg.exceptions import CommitFailedException
        from pyiceberg.table import TableProperties

        change = self._table.transaction()
        if self._table.name_mapping() is None:  # objects have no field ids
            mapping = self._table.schema().name_mapping.model_dump_json()
            change.set_properties({TableProperties.DEFAULT_NAME_MAPPING: mapping})
        step = change.update_snapshot(snapshot_properties=dict(properties)).overwrite()
        for file in added:
            step.append_data_file(file)
        for file in removed:
            step.delete_data_file(file)
        try:
            step.commit()
            change.commit_transaction()
        except CommitFailedException:
            return None
        made: int = step.snapshot_id
        return made

    def _data_file(self, io: FileIO, path: str) -> DataFile:
        from pyiceberg.io.pyarrow import parquet_file_to_data_file

        return parquet_file_to_data_file(io, self._table.metadata, path)


def location(uri: str, root: Root) -> str:
    """Return an object's location as Iceberg has it: without parameters or escapes.

    Raises:
        InvalidArgumentError: engines would take a part of its path for something else.
    """
    scheme, authority, full, _ = parts_of(located(root, uri))
    if scheme not in ("", "file") and not full.startswith("/"):
        full = f"/{full}"
    host = "/" if scheme in BUCKETS else f"//{authority}" if scheme not in ("", "file") else "//"
    if _IN_PATHS.search(full):
        raise InvalidArgumentError(
            f"The object {uri.partition('?')[0]} has a '#', '?' or '%' in its path, which Iceberg can't name.",
            "Offload to a folder without them (policy offload_uri), delete the offloaded copies, and offload again.",
        )
    return f"{scheme or 'file'}:{host}{full}"


def _io(uri: str, table: Table) -> FileIO:
    """Return what opens an object by what its own URI says; credentials come from where pyarrow looks for them."""
    from pyiceberg.io.pyarrow import PyArrowFileIO

    scheme, _, _, query = parts_of(uri)
    if scheme != "s3":
        return PyArrowFileIO(dict(table.io.properties))
    given = dict(parse_qsl(query))
    properties = {_S3_PROPERTIES[name]: value for name, value in given.items() if name in _S3_PROPERTIES}
    if "endpoint_override" in given:
        endpoint = given["endpoint_override"]
        properties["s3.endpoint"] = endpoint if "://" in endpoint else f"{given.get('scheme', 'https')}://{endpoint}"
    return PyArrowFileIO({**table.io.properties, **properties})


def _refused(t: pa.DataType) -> str | None:
    if types.is_list(t) or types.is_large_list(t):
        return _refused(t.value_type)
    if types.is_map(t):
        return _refused(t.key_type) or _refused(t.item_type)
    if types.is_struct(t):
        return next((found for at in range(t.num_fields) if (found := _refused(t.field(at).type))), None)
    if types.is_timestamp(t):
        return None if t.unit == "us" and t.tz in (None, "UTC") else str(t)
    wrong: tuple[Callable[[pa.DataType], bool], ...] = (types.is_duration, types.is_unsigned_integer, types.is_float16)
    return str(t) if any(is_type(t) for is_type in wrong) else None


def _text(error: Exception) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())[:300].rstrip(".")
