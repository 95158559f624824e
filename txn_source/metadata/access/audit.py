"""The audit: a line of JSON for each administrative change, and for each that was refused."""

from __future__ import annotations

import json
import logging
from datetime import UTC, datetime
from logging.handlers import WatchedFileHandler
from pathlib import Path
from typing import Any

from google.protobuf.json_format import MessageToDict
from google.protobuf.message import Message

from txn_source.model.errors import InvalidArgumentError
from txn_source.observing.request_ids import current

_MAX_TEXT = 500
_MAX_ITEMS = 20
_log = logging.getLogger(__name__)


class Audit:
    """Lines in a file, which may be moved away by whoever rotates it, or in the logger ``txnlog.audit``."""

    def __init__(self, path: Path | None) -> None:
        """Open the file; None: log the lines.

        Raises:
            InvalidArgumentError: it can't be written.
        """
        self._logger = logging.Logger("txnlog.audit") if path is not None else logging.getLogger("txnlog.audit")
        if path is None:
            return
        try:
            handler = WatchedFileHandler(path, encoding="utf-8")
        except OSError as error:
            raise InvalidArgumentError(
                f"The audit {path} can't be written: {error.strerror}.", "Check the path and its rights."
            ) from None
        handler.setFormatter(logging.Formatter("%(message)s"))
        self._logger.addHandler(handler)

    def close(self) -> None:
        """Close the file."""
        for handler in self._logger.handlers if isinstance(self._logger, logging.Logger) else []:
            if isinstance(handler, WatchedFileHandler):
                handler.close()

    def note(self, who: str, peer: str, call: str, request: Message, outcome: str) -> None:
        """Write a line; ``outcome`` is ``ok`` or the code of the error. A line that can't be written is only told."""
        what = _short(MessageToDict(request, preserving_proto_field_name=True))
        request_id = what.pop("request_id", None)
        line = {
            "time": datetime.now(UTC).isoformat(timespec="milliseconds"),
            "who": who,
            "from": peer,
            "call": call,
            "request_id": request_id,
            "what": what,
            "outcome": outcome,
        }
        if (caller_request := current()) is not None:
            line["caller_request_id"] = caller_request
        try:
            self._logger.info("%s", json.dumps(line, ensure_ascii=True))
        except Exception:
            _log.exception("a line of the audit couldn't be written")


def _short(value: Any) -> Any:
    """Cut long texts and lists: a schema has many bytes, a trim many partitions."""
    if isinstance(value, dict):
        return {str(name): _short(part) for name, part in list(value.items())[:_MAX_ITEMS]}
    if isinstance(value, list):
        return [_short(part) for part in value[:_MAX_ITEMS]]
    return f"{value[:_MAX_TEXT]}..." if isinstance(value, str) and len(value) > _MAX_TEXT else value
