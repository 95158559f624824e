"""Prefixes of an S3 endpoint for logs under test: one server for each process of tests, a prefix for each log."""

from __future__ import annotations

import atexit
import functools
import itertools
import os
from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

from tests.tiers.stores import CREDENTIALS, PATIENT, Bucket, S3Server
from txn_source.storage import object_store

SURROUNDINGS = {
    "AWS_ACCESS_KEY_ID": CREDENTIALS[0],
    "AWS_SECRET_ACCESS_KEY": CREDENTIALS[1],
    "AWS_EC2_METADATA_DISABLED": "true",
}
_numbers = itertools.count(1)


@functools.cache
def shared_server() -> S3Server:
    """The endpoint; it ends with this process."""
    server = S3Server()
    atexit.register(server.__exit__)
    return server


@functools.cache
def shared_bucket() -> Bucket:
    """A bucket for all logs of this process."""
    return shared_server().make_bucket()


def new_prefix() -> str:
    """Return the URI of a prefix that nothing is below."""
    return f"s3://{shared_bucket().name}/log-{next(_numbers)}?endpoint_override=http://{shared_server().endpoint}"


@contextmanager
def s3_surroundings() -> Iterator[None]:
    """A block in which credentials are found as users give them."""
    before = {name: os.environ.get(name) for name in SURROUNDINGS}
    os.environ.update(SURROUNDINGS)
    try:
        with patch.dict(object_store._S3_SECONDS, PATIENT):
            yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
