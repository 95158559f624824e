"""The wire protocol as a page: calls, messages and fields from the descriptors, with the comments of the source."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from txn_source._generated.txnlog.v1 import metadata_service_pb2

PROTO = Path(__file__).resolve().parents[2] / "proto" / "txnlog" / "v1" / "metadata_service.proto"
_SCOPE = re.compile(r"^(?:service|message|enum) (\w+) \{")
_NAMED = re.compile(r"^(?:rpc (\w+)\(|(?:optional |repeated )?(?:map<.+>|[\w.]+) (\w+) = \d+|(\w+) = \d+)")


def _comments(text: str) -> Iterator[tuple[tuple[str, str], str]]:
    """Yield what is said of each message (with an empty second name), and of each field, value and call."""
    scopes: list[str] = []
    said: list[str] = []
    for line in map(str.strip, text.splitlines()):
        if line.startswith("//"):
            said.append(line.lstrip("/ "))
            continue
        if found := _SCOPE.match(line):
            scopes.append(found[1])
            yield (".".join(filter(None, scopes)), ""), " ".join(said)
        elif line.startswith("oneof "):
            scopes.append("")
        elif found := _NAMED.match(line):
            behind = line.partition("; //")[2].strip()
            yield (".".join(filter(None, scopes)), found[1] or found[2] or found[3]), " ".join(said) or behind
        if line.endswith("}"):
            scopes.pop()
        said = []


def protocol() -> str:
    """Return the page."""
    head, _, rest = PROTO.read_text(encoding="utf-8").partition('syntax = "proto3";')
    said = dict(_comments(rest))
    found = metadata_service_pb2.DESCRIPTOR
    lines = ["# Wire protocol\n", " ".join(line.lstrip("/ ") for line in head.splitlines())]
    lines.append("\nThis is `proto/txnlog/v1`. Fields are added, never renumbered.\n")
    for name, service in found.services_by_name.items():
        lines += [f"## {name}\n", said[name, ""], "\n| call | takes | gives | |", "|---|---|---|---|"]
        lines += [
            f"| `{call.name}` | {_link(call.input_type, call.client_streaming)} |"
            f" {_link(call.output_type, call.server_streaming)} | {_cell(said.get((name, call.name), ''))} |"
            for call in service.methods
        ]
    for message in _with_nested(found.message_types_by_name):
        name = _name(message)
        lines += [f"\n## {name}\n", said.get((name, ""), ""), *_fields(message, said)]
    for name, enum in sorted(found.enum_types_by_name.items()):
        lines += [f"\n## {name}\n", said.get((name, ""), ""), "\n| value | number | |", "|---|---|---|"]
        lines += [f"| `{v.name}` | {v.number} | {_cell(said.get((name, v.name), ''))} |" for v in enum.values]
    return "\n".join(lines) + "\n"


def _with_nested(messages: Mapping[str, Any]) -> Iterator[Any]:
    for _, message in sorted(messages.items()):
        if not message.GetOptions().map_entry:
            yield message
            yield from _with_nested(message.nested_types_by_name)


def _name(kind: Any) -> str:
    return kind.full_name.removeprefix("txnlog.v1.")


def _fields(message: Any, said: dict[tuple[str, str], str]) -> Iterator[str]:
    if message.fields:
        yield "\n| field | type | number | |\n|---|---|---|---|"
    for field in message.fields:
        one_of = field.containing_oneof
        kind = _kind(field)
        if one_of is not None and not one_of.name.startswith("_"):
            kind += f", one of `{one_of.name}`"
        yield f"| `{field.name}` | {kind} | {field.number} | {_cell(said.get((_name(message), field.name), ''))} |"


def _kind(field: Any) -> str:
    kind = field.message_type or field.enum_type
    if field.message_type is not None and kind.GetOptions().map_entry:
        key, value = kind.fields_by_name["key"], kind.fields_by_name["value"]
        return f"map of {_kind(key)} to {_kind(value)}"
    names = {getattr(field, name): name[5:].lower() for name in dir(field) if name.startswith("TYPE_")}
    shown = _link(kind) if kind is not None else f"`{names.get(field.type, field.type)}`"
    return f"list of {shown}" if field.is_repeated else shown


def _link(kind: Any, many: bool = False) -> str:
    name = _name(kind)
    return f"{'stream of ' if many else ''}[{name}](#{name.replace('.', '').lower()})"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
