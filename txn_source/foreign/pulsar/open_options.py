"""The options that opening what Pulsar offloaded needs: JSON, or the path or URI of a file that has it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from txn_source.model.errors import InvalidArgumentError, shown
from txn_source.storage.object_store import file_system_of, reason

_ENCRYPTED = ("error", "keep")
_BAD_VALUES = ("error", "null")
_LARGEST_FILE = 256 << 20


def log_arguments(options: Mapping[str, str]) -> dict[str, Any]:
    """Return the arguments of ``PulsarLog`` that options, by lower-case names, mean.

    ``managedLedgers``: what `pulsar-admin topics info-internal` prints, of one topic, or of several by their names.
    ``transactionSnapshots``: messages of the namespace's __transaction_buffer_snapshot topics.
    ``schema``: see ``parse_schema``. ``encrypted``: error or keep. ``badValues``: error or null.

    Raises:
        InvalidArgumentError: one isn't what it should be, or its file can't be read.
    """
    found: dict[str, Any] = {}
    if "managedledgers" in options:
        found["ledgers"] = _by_topic(_value("managedLedgers", options["managedledgers"]))
    if "transactionsnapshots" in options:
        given = _value("transactionSnapshots", options["transactionsnapshots"])
        found["snapshots"] = given if isinstance(given, list) else [given]
    if "schema" in options:
        text = options["schema"].strip()
        found["schema"] = _value("schema", text) if _is_json(text) or "/" in text or "." in text else text
    found["keep_encrypted"] = _choice("encrypted", options.get("encrypted", "error"), _ENCRYPTED) == "keep"
    found["bad_values"] = _choice("badValues", options.get("badvalues", "error"), _BAD_VALUES)
    return found


def _by_topic(given: Any) -> Any:
    """Return lists of ledgers by topic; that of a partitioned topic has its partitions, by name, in it."""
    if not isinstance(given, Mapping):
        raise InvalidArgumentError(
            f"Option 'managedLedgers' is {shown(str(given))}.", "Give what `pulsar-admin topics info-internal` prints."
        )
    if "ledgers" in given:
        return {"": given}
    found: dict[str, Any] = {}
    for topic, info in ({"": given} if "partitions" in given else given).items():
        if isinstance(info, Mapping) and "internalInfo" in info:
            info = info["internalInfo"]
        parts = info.get("partitions") if isinstance(info, Mapping) else None
        found |= parts if isinstance(parts, Mapping) else {topic: info}
    return found


def _choice(name: str, text: str, allowed: tuple[str, ...]) -> str:
    if text.strip().lower() in allowed:
        return text.strip().lower()
    raise InvalidArgumentError(f"Option {name!r} is {shown(text)}.", f"Use {' or '.join(allowed)}.")


def _is_json(text: str) -> bool:
    return text.startswith(("{", "[", '"'))


def _value(name: str, text: str) -> Any:
    """Return what JSON says, which is given, or lies in a file: that is read anew each time the log is opened."""
    text = text.strip()
    if _is_json(text):
        where = f"Option {name!r}"
    else:
        where, text = f"{text!r} of option {name!r}", _content(name, text)
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        raise InvalidArgumentError(
            f"{where} is no JSON.", "Give JSON, or the path or URI of a file that has it."
        ) from None


def _content(name: str, place: str) -> str:
    try:
        system, path = file_system_of(place)
        with system.open_input_stream(path) as file:
            return bytes(file.read(_LARGEST_FILE)).decode("utf-8-sig", "replace")
    except FileNotFoundError:
        raise InvalidArgumentError(
            f"{place!r} of option {name!r} isn't there.", "Give JSON, or the path or URI of a file that has it."
        ) from None
    except (OSError, pa.ArrowException) as error:
        raise InvalidArgumentError(
            f"{place!r} of option {name!r} can't be read: {reason(error)}.", "Check the file and the credentials."
        ) from None
