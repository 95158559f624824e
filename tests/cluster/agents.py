"""What a test has of a program on a host: calls of its functions."""

from __future__ import annotations

import json
import os
import select
import time
from pathlib import Path
from typing import Any

from tests.cluster.hosts import Host, Running

PROGRAM = Path(__file__).with_name("agent.py")
_DEADLINE_S = 180.0


class Agent:
    """A program on a host that makes one call after the other."""

    def __init__(self, host: Host, module: str, name: str = "agent", command: list[str] | None = None) -> None:
        """Start it, by ``command`` if it isn't simply run by Python."""
        folder = host.tmp / name
        folder.mkdir()
        for pipe in ("requests", "answers"):
            os.mkfifo(folder / pipe)
        # For reading and writing, so that nobody waits for anybody to open the other end.
        self._requests = os.open(folder / "requests", os.O_RDWR)
        self._answers = os.open(folder / "answers", os.O_RDWR | os.O_NONBLOCK)
        self._name = name
        self._rest = b""
        self.host = host
        arguments = [str(PROGRAM), module, f"/tmp/{name}"]
        self.process: Running = host.start(*(command or ["python"]), *arguments, log=f"{name}/errors")

    def call(self, function: str, **arguments: Any) -> Any:
        """Make a call and return its answer; a failure fails the test."""
        self.begin(function, **arguments)
        return self.end()

    def begin(self, function: str, **arguments: Any) -> None:
        """Begin a call, whose answer ``end`` returns."""
        os.write(self._requests, (json.dumps([function, arguments]) + "\n").encode())

    def end(self) -> Any:
        """Return what the call under way answers."""
        answer = self.outcome()
        assert "error" not in answer, answer["error"]
        return answer["value"]

    def outcome(self) -> dict[str, Any]:
        """Return the answer of the call under way, under ``value`` or ``error``."""
        until = time.monotonic() + _DEADLINE_S
        while b"\n" not in self._rest:
            gone = self.process.entered.poll() is not None
            if select.select([self._answers], [], [], 0 if gone else 0.2)[0]:
                self._rest += os.read(self._answers, 1 << 16)
            else:
                assert not gone, f"{self.host.name}: the program has ended\n{self.errors()}"
                assert time.monotonic() < until, f"{self.host.name}: no answer\n{self.errors()}"
        line, _, self._rest = self._rest.partition(b"\n")
        found: dict[str, Any] = json.loads(line)
        return found

    def errors(self) -> str:
        """Return the end of what it has said on standard error."""
        return self.host.said(f"{self._name}/errors")[-4000:]

    def close(self) -> None:
        """End it."""
        self.process.kill()
        os.close(self._requests)
        os.close(self._answers)
