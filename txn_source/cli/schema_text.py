"""A topic's schema as it is given on the command line: columns as text or JSON, or a file that has a schema."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from txn_source.model.errors import InvalidArgumentError
from txn_source.storage.schema_text import SCHEMA_HINT, schema_of_text

_HINT = SCHEMA_HINT.removesuffix(".") + ", or name a Parquet or Arrow file whose schema is taken."


def parse_schema(text: str) -> pa.Schema:
    """Return the schema that a text means: a file's, if there is a file of that name, or the columns written there."""
    try:
        is_file = Path(text).is_file()
    except (OSError, ValueError):  # no file has a name so long
        is_file = False
    return _schema_of_file(Path(text)) if is_file else _parsed(text)


def _schema_of_file(path: Path) -> pa.Schema:
    try:
        with path.open("rb") as file:
            magic = file.read(6)
        if magic[:4] == b"PAR1":
            import pyarrow.parquet as pq

            return pq.read_schema(path)
        if magic == b"ARROW1":
            with pa.ipc.open_file(path) as arrow:
                return arrow.schema
        return _parsed(path.read_text(encoding="utf-8"))
    except (OSError, pa.ArrowException, UnicodeDecodeError) as error:
        raise InvalidArgumentError(f"The schema of file {str(path)!r} can't be read ({error}).", _HINT) from None


def _parsed(text: str) -> pa.Schema:
    try:
        return schema_of_text(text)
    except InvalidArgumentError as error:
        raise InvalidArgumentError(error.fact, _HINT if error.remedy == SCHEMA_HINT else error.remedy) from None
