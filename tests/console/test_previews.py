"""Pages of messages that are read in processes of their own."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.access.authority import Signer
from tests.console.asked import Asked
from tests.console.test_messages import all_pages, fill
from tests.log.reading import eventually
from tests.selection import for_each
from txn_source import connect
from txn_source.console import previews
from txn_source.console.previews import InProcesses
from txn_source.metadata.access.door import Door
from txn_source.metadata.access.keys import Keys
from txn_source.metadata.access.tokens import Verifier


@pytest.fixture
def asked(tmp_path: Path) -> Iterator[Asked]:
    with Asked(tmp_path / "log", previews=InProcesses()) as made:
        yield made


@pytest.fixture
def log_with_topic(tmp_path: Path) -> Path:
    """A log with an empty topic ``t``."""
    with connect(tmp_path / "log") as log:
        log.create_topic("t")
    return tmp_path / "log"


def test_pages_are_the_same_as_in_the_service(asked: Asked, tmp_path: Path) -> None:
    """Read all messages of a topic, hot and tiered, whole and by their key."""
    fill(asked.log)
    queries: list[dict[str, Any]] = [{"from_": "earliest"}, {"key": "k7"}]
    with Asked(tmp_path / "log") as here:
        for query in queries:
            rows = all_pages(asked, topic="t", limit=80, **query)
            assert rows
            assert rows == all_pages(here, topic="t", limit=80, **query)
        for query in ({"partition": 0, "full": 1, "position": rows[-1]["position"]}, {"key_hex": "x"}):
            found, expected = (each.get("messages", topic="t", **query) for each in (asked, here))
            assert (found.status, found.json | {"now_ms": 0}) == (expected.status, expected.json | {"now_ms": 0})


def test_page_that_needs_too_much_memory_is_an_error_of_its_request(
    asked: Asked, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Give the process less than it needs; then as much as usual."""
    asked.log.create_topic("t")
    with asked.log.producer("t") as producer:
        producer.send(b"v")
    with monkeypatch.context() as patched:
        patched.setattr(previews, "_MEMORY", 100 << 20)
        answer = asked.get("messages", topic="t")
        assert (answer.status, answer.code) == (429, "LIMIT_EXCEEDED")
        assert asked.get("topics").status == 200
    asked.get("messages", topic="t")  # by the process that was started before
    assert len(asked.get("messages", topic="t").rows) == 1


@for_each(
    "says",
    [
        b"",
        b"\x00\x00",  # a part of a message
        b"\x00\x00\x00\x05q[1]!" * 3,
        b"\x00\x00\x00\x02r!",
        b"\x00\x00\x00\x02r\xff",
        b"\x00\x00\x00\x05rnull",
        b"\x00\x00\x27\x11r" + b"[" * 10_000,
        b"\x00\x00\x00\x02e!",
    ],
)
def test_process_that_an_attacker_controls_costs_its_page(
    log_with_topic: Path, monkeypatch: pytest.MonkeyPatch, says: bytes
) -> None:
    """Let a process send something else than a page, and stay: its page is an error, in time."""
    code = f"import os, sys, time; os.write(int(sys.argv[1]), {says!r}); time.sleep(600)"
    with monkeypatch.context() as patched, Asked(log_with_topic, previews=InProcesses()) as asked:
        patched.setattr(previews, "_PAGE_S", 0.5)
        patched.setattr(previews, "_PROGRAM", ["-c", code])
        answer = asked.get("messages", topic="t")
        assert (answer.status, answer.code) == (429, "LIMIT_EXCEEDED"), answer.body


@pytest.mark.long
def test_process_that_was_started_ahead_may_die(asked: Asked) -> None:
    """Kill it between two pages: the next page is read by a new one."""
    asked.log.create_topic("t")
    assert asked.get("messages", topic="t").rows == []
    [pid] = page_processes()
    os.kill(pid, signal.SIGKILL)
    process = Path(f"/proc/{pid}")
    eventually(lambda: state_and_parent(process)[0] == "Z" and len(list((process / "task").iterdir())) == 1)
    assert asked.get("messages", topic="t").rows == []


def page_processes() -> list[int]:
    """Return the processes that this one has started to read pages."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            ours = state_and_parent(folder)[1] == str(os.getpid())
            found += [int(folder.name)] * (ours and b"page_process" in (folder / "cmdline").read_bytes())
    return found


def state_and_parent(process: Path) -> list[str]:
    """Return the letter of a process's state, and the number of its parent."""
    return (process / "stat").read_text().rpartition(")")[2].split()[:2]


def test_page_is_read_as_its_visitor(tmp_path: Path) -> None:
    """Ask with tokens of several roles: the process has no rights of its own."""
    signer = Signer(tmp_path)
    door = Door(Verifier(Keys([signer.public_file])))
    with Asked(tmp_path / "log", door=door, previews=InProcesses()) as asked:
        asked.log.create_topic("bank/public/orders")
        with asked.log.producer("bank/public/orders") as producer:
            producer.send(b"v")
        for role, pattern, status in (("consume", "bank/*", 200), ("produce", "bank/*", 403), ("monitor", "*", 403)):
            answer = asked.get("messages", signer.token("bob", **{role: [pattern]}), topic="bank/public/orders")
            assert answer.status == status, answer.body


def test_who_waits_too_long_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ask while all turns are taken: one is asked to try again."""
    monkeypatch.setattr(previews, "_PATIENCE_S", 0.0)
    monkeypatch.setattr(previews, "_AT_ONCE", 0)
    with Asked(tmp_path / "log", previews=InProcesses()) as asked:
        asked.log.create_topic("t")
        answer = asked.get("messages", topic="t")
        assert (answer.status, answer.code) == (429, "RATE_LIMITED")
