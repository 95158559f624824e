"""A log, and its console over HTTP as its page asks it."""

from __future__ import annotations

import http.client
import json
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlencode

from txn_source import Log, connect
from txn_source.client.target import open_service
from txn_source.console.previews import InThisProcess
from txn_source.console.serving import Console
from txn_source.metadata.access.door import Door
from txn_source.storage.object_root import root_at

CHANGING = {"Content-Type": "application/json", "X-Txnlog-Console": "1"}


class Answer(NamedTuple):
    status: int
    body: bytes
    headers: dict[str, str]

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def rows(self) -> list[Any]:
        assert self.status == 200, self.body
        return self.json["rows"]  # type: ignore[no-any-return]

    @property
    def code(self) -> str:
        return str(self.json["error"]["code"])


class Asked:
    """The console of a new log on a free port. A context manager."""

    def __init__(self, root: Path, door: Door | None = None, **options: Any) -> None:
        self.root = root
        self.stack = ExitStack()
        self.log: Log = self.stack.enter_context(connect(root))
        self.service = open_service(str(root), None)
        self.stack.callback(self.service.close)
        options = {"previews": InThisProcess()} | options
        self.console = Console(self.service, root_at(root), "127.0.0.1", 0, door=door, **options)

    def __enter__(self) -> Asked:
        self.stack.enter_context(self.console)
        return self

    def __exit__(self, *_: object) -> None:
        self.stack.close()

    def ask(self, method: str, path: str, body: bytes | None = None, headers: dict[str, str] | None = None) -> Answer:
        """Send a request as it is given."""
        connection = http.client.HTTPConnection("127.0.0.1", self.console.listener.port, timeout=60)
        try:
            connection.request(method, path, body, headers or {})
            answer = connection.getresponse()
            return Answer(answer.status, answer.read(), {k.lower(): v for k, v in answer.getheaders()})
        finally:
            connection.close()

    def get(self, path: str, /, token: str | None = None, **query: Any) -> Answer:
        """Ask for what is below ``/api/``; ``from_`` stands for ``from``."""
        self.console.snapshots.forget()
        named = {key.rstrip("_"): value for key, value in query.items()}
        return self.ask("GET", f"/api/{path}?{urlencode(named)}", headers=_bearer(token))

    def post(self, path: str, body: Any, token: str | None = None, **headers: str) -> Answer:
        """Change something."""
        return self.ask("POST", f"/api/{path}", json.dumps(body).encode(), CHANGING | _bearer(token) | headers)


def _bearer(token: str | None) -> dict[str, str]:
    return {} if token is None else {"Authorization": f"Bearer {token}"}
