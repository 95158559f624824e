"""Hosts of a small network, made of namespaces: each has its own address, name, processes and files.

A host sees the installation (Python, Java, this checkout), read-only, and besides that what is its own: ``/tmp``, with
the home folder, ``/run``, ``/dev/shm``. So nothing that one host writes is found by another, but by the network. All of
it is gone when the test's process ends, however that ends.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

_UNSHARE = ("unshare", "--mount", "--net", "--pid", "--uts", "--ipc", "--fork", "--kill-child", "--mount-proc")
_BEGIN = r"""
set -e
hostname "$1"
ip link set lo up
mount --bind "$2/hosts" /etc/hosts
mount -t tmpfs none /run
for each in "${@:4}"; do
  mkdir -p "$2$each"
  mount --bind "$each" "$2$each"
  mount -o remount,ro,bind "$2$each"
done
mount --rbind "$2/tmp" /tmp
mount -t tmpfs none /dev/shm
[ ! -d "$3" ] || mount -t tmpfs none "$3"
mount -o remount,ro,bind /
cd /tmp
echo up
read -r _
"""
_PYTHON = Path(sys.executable).parent
_INSTALLATION = (Path(__file__).resolve().parents[2], Path(sys.prefix), Path(sys.base_prefix))
_BELOW_TMP = [str(path) for path in _INSTALLATION if path.is_relative_to("/tmp")]
"""Parts of the installation that a host's own ``/tmp`` would hide."""


def reason_without() -> str | None:
    """Return why there can be no hosts here; None if there can."""
    if os.geteuid() != 0:
        return "network namespaces are made by root"
    for program in ("ip", "unshare", "nsenter", "bash"):
        if shutil.which(program) is None:
            return f"{program} is not here"
    tried = subprocess.run([*_UNSHARE, "ip", "link", "add", "b0", "type", "bridge"], capture_output=True, text=True)
    return None if tried.returncode == 0 else f"no namespaces: {tried.stderr.strip()}"


class Host:
    """One host; its processes end with it. ``folder`` has its files: ``tmp`` is what it sees as ``/tmp``."""

    def __init__(self, name: str, address: str, folder: Path, environment: Mapping[str, str]) -> None:
        self.name = name
        self.address = address
        self.folder = folder
        self.tmp = folder / "tmp"
        self.environment = {
            "PATH": f"{_PYTHON}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
            "HOME": "/tmp/home",
            "LANG": "C.UTF-8",
            **environment,
        }
        for each in (folder, self.tmp, self.tmp / "home"):
            each.mkdir()
        self.tmp.chmod(0o1777)
        (folder / "hosts").touch()
        self._init = subprocess.Popen(
            [*_UNSHARE, "bash", "-c", _BEGIN, "host", name, str(folder), str(folder.parent), *_BELOW_TMP],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        self._running: list[Running] = []
        assert self._init.stdout is not None
        assert self._init.stdout.readline() == "up\n"
        [self.pid] = _children(self._init.pid)

    def enter(self, *namespaces: str) -> list[str]:
        """Return the beginning of a command that runs in here; without ``namespaces`` in all of them."""
        flags = namespaces or ("--mount", "--net", "--pid", "--uts", "--ipc", "--wd")
        return ["nsenter", "--target", str(self.pid), *flags, "--"]

    def start(self, *command: str | Path, env: Mapping[str, str] | None = None, log: str = "log") -> Running:
        """Start a process in here; what it says is added to a file of ``tmp``."""
        with (self.tmp / log).open("ab") as file:
            entered = subprocess.Popen(
                [*self.enter(), *map(str, command)],
                env={**self.environment, **(env or {})}, stdin=subprocess.DEVNULL, stdout=file, stderr=file,
            )  # fmt: skip
        self._running.append(Running(entered))
        return self._running[-1]

    def said(self, log: str = "log") -> str:
        """Return what processes have said into a file."""
        path = self.tmp / log
        return path.read_text(errors="replace") if path.exists() else ""

    def run(self, *command: str | Path, env: Mapping[str, str] | None = None, timeout: float = 120) -> str:
        """Run a command in here and return its output; what it says on failure fails the test."""
        environment = {**self.environment, **(env or {})}
        done = subprocess.run(
            [*self.enter(), *map(str, command)], env=environment, capture_output=True, text=True, timeout=timeout
        )
        assert done.returncode == 0, f"{self.name}: {command}\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
        return done.stdout

    def processes(self, text: str) -> list[int]:
        """Return the processes in here that have a text in their command line."""
        ours, found = os.readlink(f"/proc/{self.pid}/ns/pid"), []
        for path in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                if os.readlink(path / "ns/pid") == ours and text in (path / "cmdline").read_text(errors="replace"):
                    found.append(int(path.name))
        return found

    def kill(self, text: str) -> int:
        """Kill the processes in here that have a text in their command line, without a warning; return how many."""
        found = self.processes(text)
        for pid in found:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return len(found)

    def close(self) -> None:
        """End the host and all that runs on it."""
        self._init.kill()
        self._init.communicate()
        for each in self._running:
            each.entered.wait(30)


class Running:
    """A process on a host. Signals go to itself, not to what brought it there."""

    def __init__(self, entered: subprocess.Popen[Any]) -> None:
        self.entered = entered

    def signal(self, number: signal.Signals, below: int = 0) -> None:
        """Send a signal, if it is still there; or to its child, ``below`` generations down."""
        pids = _children(self.entered.pid)
        for _ in range(below):
            pids = [child for pid in pids for child in _children(pid)]
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, number)

    def kill(self) -> None:
        """Kill it, and return when it is gone."""
        self.signal(signal.SIGKILL)
        self.entered.wait(30)


class Network:
    """A bridge with hosts. A context manager."""

    def __init__(self, folder: Path, environment: Mapping[str, str]) -> None:
        self._folder = folder
        self._environment = environment
        self.hosts: dict[str, Host] = {}
        self._switch = Host("switch", "", folder / "switch", environment)
        self._on_switch("ip link add bridge type bridge", "ip link set bridge up")

    def __enter__(self) -> Network:
        return self

    def __exit__(self, *_: object) -> None:
        for host in (*self.hosts.values(), self._switch):
            host.close()

    def add(self, *names: str) -> None:
        """Add hosts, and tell all of them each other's names."""
        for name in names:
            number = len(self.hosts) + 1
            host = Host(name, f"10.77.0.{number}", self._folder / name.partition(".")[0], self._environment)
            self.hosts[name] = host
            self._on_switch(
                f"ip link add port{number} type veth peer name eth0 netns {host.pid}",
                f"ip link set port{number} master bridge up",
            )
            commands = (
                f"ip address add {host.address}/24 dev eth0; ip address add fd77::{number}/64 dev eth0 nodad;"
                " ip link set eth0 up"
            )
            subprocess.run([*host.enter("--net"), "sh", "-e", "-c", commands], check=True)
        self.name_hosts()

    def name_hosts(self, **other: str) -> None:
        """Tell all hosts their names; ``other`` says of some, by the first label, an address that isn't theirs."""
        lines = ["127.0.0.1 localhost", "::1 localhost"]
        for host in self.hosts.values():
            short = host.name.partition(".")[0]
            lines.append(f"{other.get(short, host.address)} {host.name} {short}")
        for host in self.hosts.values():
            (host.folder / "hosts").write_text("\n".join(lines) + "\n")

    def unplug(self, name: str) -> None:
        """Take a host off the network."""
        self._on_switch(f"ip link set {self._port(name)} down")

    def plug(self, name: str) -> None:
        """Put a host back."""
        self._on_switch(f"ip link set {self._port(name)} up")

    def _port(self, name: str) -> str:
        return f"port{list(self.hosts).index(name) + 1}"

    def _on_switch(self, *commands: str) -> None:
        subprocess.run([*self._switch.enter("--net"), "sh", "-e", "-c", "\n".join(commands)], check=True)


def _children(pid: int) -> list[int]:
    try:
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []
