"""Places that a caller with a token may name."""

from __future__ import annotations

import pytest

from tests.selection import for_each
from txn_source.model.errors import InvalidArgumentError
from txn_source.storage.allowed_places import VARIABLE, AllowedPlaces, as_variable, limited_to, listed

STORE = "s3://bank/logs?endpoint_override=minio:9000&region=eu"
PLACES = AllowedPlaces(["/data/log", "/mnt/tiered/", "s3://plain", STORE, "hdfs://nodes/cold"])


@for_each(
    "uri",
    [
        "tiered", "a/b/c", "/data/log", "/data/log/tiered", "file:///mnt/tiered/x", "file:/data/log/x",
        "s3://plain/any/where", "s3://bank/logs/x?region=eu&endpoint_override=minio:9000", "hdfs://nodes/cold/x",
        "S3://plain/x",
    ],
)  # fmt: skip
def test_what_lies_below_a_place_is_allowed(uri: str) -> None:
    assert PLACES.has(uri)


@for_each(
    "uri",
    [
        "../x", "a/../../x", "a//b", ".", "/data", "/data/logs", "/data/log/../secret", "/data//log", "/etc",
        "//data/log",
        "file://evil/data/log", "file:///etc", "file:///data/log?x=1", "s3://other/x", "s3://plain.evil/x",
        "s3://plain/%2e%2e/x", "s3://plain/a%2f..%2f..", "s3://plain/x?endpoint_override=evil.example:443",
        "s3://bank/logs/x", "s3://bank/logs/x?endpoint_override=evil&region=eu", "s3://bank/logsx?region=eu",
        "s3://bank/logs/x?endpoint_override=minio:9000&endpoint_override=evil&region=eu", "gs://plain/x",
        "gs://plain/x?endpoint_override=evil", "hdfs://evil/cold", "hdfs://nodes/coldest", "abfs://x", "http://evil/",
        "s3://plain@evil/x", "a\\..\\b", "a\0b",
    ],
)  # fmt: skip
def test_everything_else_is_not(uri: str) -> None:
    assert not PLACES.has(uri)


@for_each("text", ["relative", "/a/../b", "file://host/x", "s3://b//c"])
def test_place_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(InvalidArgumentError, match="is not a place"):
        AllowedPlaces([text])


def test_limit_of_a_process_is_that_of_its_child(monkeypatch: pytest.MonkeyPatch) -> None:
    """Write the places of a process as the variable, and read them as a child does."""
    places = ("/mnt/cold store", "s3://bank/it's?endpoint_override=minio:9000")
    monkeypatch.delenv(VARIABLE, raising=False)
    assert listed() is None
    with limited_to(places):
        monkeypatch.setenv(VARIABLE, as_variable(listed() or ()))
    assert listed() == places
    monkeypatch.setenv(VARIABLE, "'open")
    with pytest.raises(InvalidArgumentError, match="TXNLOG_PLACES can't be read: No closing quotation"):
        listed()
