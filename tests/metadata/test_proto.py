"""The protocol as described: names and comments as in buf's STANDARD rules, and nothing that breaks older clients.

What released clients know lies in ``proto/baseline.binpb``. `make proto-baseline` writes it anew, for a release that
breaks with older ones on purpose.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    EnumDescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
    FileDescriptorSet,
)

ROOT = Path(__file__).resolve().parents[2]
BASELINE = ROOT / "proto" / "baseline.binpb"
PASCAL, SNAKE = re.compile(r"([A-Z][a-z0-9]*)+"), re.compile(r"[a-z][a-z0-9]*(_[a-z0-9]+)*")
MESSAGES, ENUMS, FIELDS, VALUES, NESTED, NESTED_ENUMS, SERVICES, METHODS = 4, 5, 2, 2, 3, 4, 6, 2
"""Numbers of these fields in descriptors, which the places of comments are made of."""


def described(folder: Path) -> FileDescriptorProto:
    """Return the descriptor of the protocol, with its comments."""
    out = folder / "now.binpb"
    command = [sys.executable, "-m", "grpc_tools.protoc", "-Iproto", f"--descriptor_set_out={out}"]
    protos = sorted(path.relative_to(ROOT / "proto").as_posix() for path in (ROOT / "proto").rglob("*.proto"))
    subprocess.run([*command, "--include_source_info", *protos], cwd=ROOT, check=True)
    [file] = FileDescriptorSet.FromString(out.read_bytes()).file
    return file


@pytest.fixture(scope="module")
def now(tmp_path_factory: pytest.TempPathFactory) -> FileDescriptorProto:
    return described(tmp_path_factory.mktemp("proto"))


def messages(file: FileDescriptorProto) -> Iterator[tuple[str, tuple[int, ...], DescriptorProto]]:
    """Yield all messages but those that stand for maps: name with those around it, place, descriptor."""

    def within(name: str, place: tuple[int, ...], message: DescriptorProto) -> Iterator[Any]:
        if not message.options.map_entry:
            yield name, place, message
        for number, nested in enumerate(message.nested_type):
            yield from within(f"{name}.{nested.name}", (*place, NESTED, number), nested)

    for number, message in enumerate(file.message_type):
        yield from within(message.name, (MESSAGES, number), message)


def enums(file: FileDescriptorProto) -> Iterator[tuple[str, tuple[int, ...], EnumDescriptorProto]]:
    """Yield all enums, as ``messages`` does."""
    yield from ((enum.name, (ENUMS, number), enum) for number, enum in enumerate(file.enum_type))
    for name, place, message in messages(file):
        for number, enum in enumerate(message.enum_type):
            yield f"{name}.{enum.name}", (*place, NESTED_ENUMS, number), enum


def lint(file: FileDescriptorProto) -> Iterator[str]:
    """Yield what breaks a rule."""
    commented = {tuple(where.path) for where in file.source_code_info.location if where.leading_comments.strip()}
    names: list[tuple[re.Pattern[str], str]] = []
    if not re.fullmatch(r".*\.v[0-9]+", file.package) or not file.name.startswith(file.package.replace(".", "/") + "/"):
        yield f"{file.name}: package {file.package} has no version, or lies in another folder"
    for name, place, message in messages(file):
        names.append((PASCAL, name.split(".")[-1]))
        names += [(SNAKE, oneof.name.removeprefix("_")) for oneof in message.oneof_decl]
        for number, field in enumerate(message.field):
            names.append((SNAKE, field.name))
            if (*place, FIELDS, number) not in commented:
                yield f"{name}.{field.name} has no comment"
            if field.proto3_optional and field.type == FieldDescriptorProto.TYPE_MESSAGE:
                yield f"{name}.{field.name} is optional anyway: it is a message"
    for name, place, enum in enums(file):
        prefix = re.sub(r"(?<!^)(?=[A-Z])", "_", enum.name).upper() + "_"
        names.append((PASCAL, enum.name))
        if place not in commented:
            yield f"{name} has no comment"
        if (enum.value[0].number, enum.value[0].name) != (0, f"{prefix}UNSPECIFIED"):
            yield f"{name} doesn't begin with {prefix}UNSPECIFIED = 0"
        for number, value in enumerate(enum.value):
            names.append((SNAKE, value.name.lower()))
            if not value.name.startswith(prefix) or value.name != value.name.upper():
                yield f"{name}.{value.name} doesn't begin with {prefix}"
            if (*place, VALUES, number) not in commented:
                yield f"{name}.{value.name} has no comment"
    used: set[str] = set()
    for index, service in enumerate(file.service):
        names.append((PASCAL, service.name))
        if not service.name.endswith("Service"):
            yield f"{service.name} doesn't end with Service"
        for number, method in enumerate(service.method):
            names.append((PASCAL, method.name))
            types = [kind.split(".")[-1] for kind in (method.input_type, method.output_type)]
            if types != [f"{method.name}Request", f"{method.name}Response"] or used & set(types):
                yield f"{method.name} has no request and response of its own"
            used.update(types)
            if (SERVICES, index, METHODS, number) not in commented:
                yield f"{method.name} has no comment"
    yield from (f"{name} is not written as {form.pattern}" for form, name in names if not form.fullmatch(name))


def breaks(before: FileDescriptorProto, after: FileDescriptorProto) -> Iterator[str]:
    """Yield what of a protocol a later one has taken away, or given another meaning on the wire."""
    later = {name: message for name, _, message in messages(after)}
    for name, _, message in messages(before):
        if name not in later:
            yield f"message {name} is gone"
            continue
        fields = {field.number: field for field in later[name].field}
        reserved = {number for span in later[name].reserved_range for number in range(span.start, span.end)}
        for field in message.field:
            found = fields.get(field.number)
            if found is None:
                if field.number not in reserved:
                    yield f"{name}.{field.name} is gone, and its number {field.number} is not reserved"
            elif _shape(message, field) != _shape(later[name], found):
                yield f"{name}.{field.name} = {field.number} is another field now"
        for number in {n for span in message.reserved_range for n in range(span.start, span.end)} - reserved:
            yield f"{name} has {number} reserved no more"
    kinds = {name: enum for name, _, enum in enums(after)}
    for name, _, enum in enums(before):
        values = {value.number: value.name for value in kinds[name].value} if name in kinds else {}
        for value in enum.value:
            if values.get(value.number) != value.name:
                yield f"{name}.{value.name} = {value.number} is gone, or another one"
    services = {service.name: {m.name: m for m in service.method} for service in after.service}
    for service in before.service:
        for method in service.method:
            if services.get(service.name, {}).get(method.name) != method:
                yield f"{service.name}.{method.name} is gone, or another one"


def _shape(message: DescriptorProto, field: FieldDescriptorProto) -> tuple[Any, ...]:
    oneof = message.oneof_decl[field.oneof_index].name if field.HasField("oneof_index") else None
    return field.name, field.label, field.type, field.type_name, oneof


def test_protocol_follows_the_rules_of_style(now: FileDescriptorProto) -> None:
    """Names, zero values, comments on all fields, values and calls; a request and a response for each call."""
    assert list(lint(now)) == []


def test_protocol_breaks_no_released_client(now: FileDescriptorProto) -> None:
    """Compare with what is checked in."""
    [before] = FileDescriptorSet.FromString(BASELINE.read_bytes()).file
    assert list(breaks(before, now)) == []
