"""A topic's schema as text: columns as SQL has them, or as JSON.

    id bigint, name string not null, tags array<string>, at timestamp

Types are Spark SQL's and Arrow's names, in any case; a colon may stand between name and type. Where the two differ
in meaning it is Spark's that counts: ``timestamp`` is an instant (UTC) and ``timestamp_ntz`` has no zone.
"""

from __future__ import annotations

import json
import re

import pyarrow as pa

from txn_source.model.errors import InvalidArgumentError

_TOKEN = re.compile(r"\s*(?:(?P<quoted>`[^`]+`)|(?P<word>[^\s,:<>()`\[\]]+(?:\[[^\]]*\])?)|(?P<mark>[,:<>()]))")
_ZONED = re.compile(r"timestamp\[(s|ms|us|ns),\s*tz=([^\]]+)\]")
_SPARK_TYPES = {
    "boolean": pa.bool_(),
    "byte": pa.int8(),
    "tinyint": pa.int8(),
    "short": pa.int16(),
    "smallint": pa.int16(),
    "int": pa.int32(),
    "integer": pa.int32(),
    "long": pa.int64(),
    "bigint": pa.int64(),
    "real": pa.float32(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "timestamp_ltz": pa.timestamp("us", tz="UTC"),
    "timestamp_ntz": pa.timestamp("us"),
}
_DECIMALS = ("decimal", "dec", "numeric", "decimal128")
SCHEMA_HINT = 'Write columns as "id bigint, name string".'


def schema_of_text(text: str) -> pa.Schema:
    """Return the schema whose columns are written in a text, as SQL or as JSON."""
    if text.lstrip().startswith("{"):
        return _schema_of_json(text)
    parser = _Parser(text)
    columns = parser.whole() or parser.columns()
    parser.expect_end()
    return pa.schema(columns)


def _schema_of_json(text: str) -> pa.Schema:
    try:
        columns = json.loads(text)
    except json.JSONDecodeError as error:
        raise InvalidArgumentError(f"The schema {text!r:.120} is not JSON ({error}).", SCHEMA_HINT) from None
    if not all(isinstance(value, str) for value in columns.values()):
        raise InvalidArgumentError(
            f"The schema {text!r:.120} has a column whose type is not text.", 'Write it as {"id": "bigint"}.'
        )
    fields = []
    for name, type_text in columns.items():
        parser = _Parser(type_text)
        fields.append(parser.typed(name))
        parser.expect_end()
    return pa.schema(fields)


class _Parser:
    """Recursive descent over the tokens of a schema's text."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens: list[str] = []
        self._next = 0
        at = 0
        while text[at:].strip():
            found = _TOKEN.match(text, at)
            if found is None:
                raise self._error(f"{text[at:].strip()!r:.40} can't be read")
            self._tokens.append(found[0].strip())
            at = found.end()

    def whole(self) -> list[pa.Field]:
        """Read ``struct<id:bigint,...>``, Spark's ``simpleString()``; empty if the text is something else."""
        if self._peek().lower() != "struct" or self._peek(1) != "<":
            return []
        return list(self._type())

    def columns(self) -> list[pa.Field]:
        """Read columns with commas between them."""
        found = [self._column()]
        while self._taken(","):
            found.append(self._column())
        return found

    def typed(self, name: str) -> pa.Field:
        """Read a type, and whether it may be null."""
        kind = self._type()
        if self._taken("not"):
            if not self._taken("null"):
                raise self._error(f'"null" is missing after "not", before {self._shown()}')
            return pa.field(name, kind, nullable=False)
        return pa.field(name, kind)

    def expect_end(self) -> None:
        """Fail if anything is left."""
        if self._next < len(self._tokens):
            raise self._error(f"{self._shown()} is not expected there")

    def _column(self) -> pa.Field:
        name = self._word("a column's name").strip("`")
        self._taken(":")
        return self.typed(name)

    def _type(self) -> pa.DataType:
        word = self._word("a type")
        name = word.lower()
        match name:
            case "array" | "list":
                self._need("<")
                if self._peek(1) == ":":  # Arrow writes list<item: int64>
                    self._next += 2
                kind = pa.list_(self.typed("item").with_name("item"))
                self._need(">")
                return kind
            case "map":
                self._need("<")
                key = self._type()
                self._need(",")
                kind = pa.map_(key, self.typed("value"))
                self._need(">")
                return kind
            case "struct":
                self._need("<")
                kind = pa.struct(self.columns())
                self._need(">")
                return kind
        if name in _DECIMALS:
            return self._decimal()
        if name in _SPARK_TYPES:
            return _SPARK_TYPES[name]
        zoned = _ZONED.fullmatch(word)
        try:
            return pa.timestamp(zoned[1], tz=zoned[2]) if zoned else pa.type_for_alias(name)
        except ValueError:
            raise self._error(f"{word!r} is not a type") from None

    def _decimal(self) -> pa.DataType:
        precision, scale = "10", "0"
        if self._taken("("):
            precision = self._word("a precision")
            if self._taken(","):
                scale = self._word("a scale")
            self._need(")")
        try:
            return pa.decimal128(int(precision), int(scale))
        except (ValueError, pa.ArrowException):
            raise self._error(f"decimal({precision},{scale}) is not a type") from None

    def _word(self, what: str) -> str:
        word = self._peek()
        if not word or word in ",:<>()":
            raise self._error(f"{what} is missing before {self._shown()}")
        self._next += 1
        return word

    def _need(self, mark: str) -> None:
        if not self._taken(mark):
            raise self._error(f"{mark!r} is missing before {self._shown()}")

    def _taken(self, token: str) -> bool:
        if self._peek().lower() != token:
            return False
        self._next += 1
        return True

    def _peek(self, ahead: int = 0) -> str:
        at = self._next + ahead
        return self._tokens[at] if at < len(self._tokens) else ""

    def _shown(self) -> str:
        return repr(self._peek()) if self._peek() else "the end"

    def _error(self, why: str) -> InvalidArgumentError:
        return InvalidArgumentError(f"The schema {self._text!r:.120} can't be used: {why}.", SCHEMA_HINT)
