"""Credentials for requests to S3 that we sign ourselves, from where the AWS SDK looks for them.

They are the client's own: from its environment, its files, or, with ``botocore`` installed, from whatever else that
knows (roles of machines and pods, single sign-on). They are asked for at each request, since they may expire.
"""

from __future__ import annotations

import configparser
import functools
import os
from collections.abc import Callable
from dataclasses import field
from pathlib import Path
from typing import Any

from txn_source.model.values import dataclass


@dataclass(frozen=True, slots=True)
class Credentials:
    """What a request is signed with; only the key's name is ever shown."""

    access_key: str
    secret_key: str = field(repr=False)
    token: str | None = field(default=None, repr=False)


def find_credentials() -> Credentials | None:
    """Return the present credentials; None if they can't be found without the SDK."""
    access, secret = os.environ.get("AWS_ACCESS_KEY_ID"), os.environ.get("AWS_SECRET_ACCESS_KEY")
    if access and secret:
        return Credentials(access, secret, os.environ.get("AWS_SESSION_TOKEN") or None)
    of_file = _of_file("AWS_SHARED_CREDENTIALS_FILE", "credentials", _profile())
    if of_file is not None and "aws_access_key_id" in of_file and "aws_secret_access_key" in of_file:
        return Credentials(
            of_file["aws_access_key_id"], of_file["aws_secret_access_key"], of_file.get("aws_session_token")
        )
    other = _of_botocore(_profile())
    return None if other is None else other()


def find_region() -> str | None:
    """Return the region that the surroundings name; None if they don't."""
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION"):
        if region := os.environ.get(name):
            return region
    profile = _profile()
    found = _of_file("AWS_CONFIG_FILE", "config", profile if profile == "default" else f"profile {profile}")
    return None if found is None else found.get("region")


def _profile() -> str:
    return os.environ.get("AWS_PROFILE") or "default"


def _of_file(variable: str, name: str, section: str) -> dict[str, str] | None:
    path = Path(os.environ.get(variable) or Path.home() / ".aws" / name)
    try:
        return _parsed(path, path.stat().st_mtime_ns).get(section)
    except OSError:
        return None


@functools.lru_cache(4)
def _parsed(path: Path, _changed: int) -> dict[str, dict[str, str]]:
    parser = configparser.RawConfigParser()
    try:
        parser.read_string(path.read_text(encoding="utf-8"))
    except (configparser.Error, UnicodeDecodeError):
        return {}
    return {section: dict(parser.items(section)) for section in parser.sections()}


@functools.lru_cache(4)
def _of_botocore(profile: str) -> Callable[[], Credentials | None] | None:
    try:
        from botocore.session import Session  # type: ignore[import-untyped]
    except ImportError:
        return None
    found: Any = Session(profile=None if profile == "default" else profile).get_credentials()
    if found is None:
        return None

    def current() -> Credentials:
        frozen = found.get_frozen_credentials()
        return Credentials(frozen.access_key, frozen.secret_key, frozen.token)

    return current
