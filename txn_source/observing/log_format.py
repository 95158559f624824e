"""How a service's log is written: lines for people, or a JSON object for each."""

from __future__ import annotations

import json
import logging
from datetime import UTC, datetime
from enum import StrEnum

from txn_source.observing.request_ids import current


class LogFormat(StrEnum):
    """A form of lines."""

    TEXT = "text"
    JSON = "json"


class TextFormatter(logging.Formatter):
    """Time, level and message; behind them the id of the request, if there is one."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(message)s")

    def formatMessage(self, record: logging.LogRecord) -> str:
        """Return the line without a traceback."""
        name = current()
        line = super().formatMessage(record)
        return line if name is None else f"{line} (request {name})"


class JsonFormatter(logging.Formatter):
    """An object in one line: time, level, logger, message; ``request_id`` and ``traceback`` where there are any."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        line = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        name = current()
        if name is not None:
            line["request_id"] = name
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=True)


def log_to_standard_error(form: str) -> None:
    """Write this process's log to standard error: ``text`` or ``json``."""
    handler = logging.StreamHandler()
    handler.setFormatter(JsonFormatter() if form == LogFormat.JSON else TextFormatter())
    logging.basicConfig(level=logging.INFO, handlers=[handler])
