"""Services and clients in surroundings that aren't as they should be."""

from __future__ import annotations

import re
import signal
from collections.abc import Iterator

import pytest

from tests.cluster.site import Cluster

pytestmark = pytest.mark.long
NAME, OTHER = "txnlog-2", "txnlog-1"
_NOBODY = (
    "setpriv --reuid 12345 --regid 12345 --clear-groups --inh-caps +dac_read_search --ambient-caps +dac_read_search"
)
"""A user that the system doesn't know. It may read what root may, since the tests' Python may lie in root's home."""
_CONTAINER = f"""
mount -o remount,ro,bind /tmp
mount -t tmpfs -o ro none /dev/shm
mount -t tmpfs -o ro none /run
export HOME=/nonexistent
exec {_NOBODY} sh -e -c "$0"
"""


@pytest.fixture
def stopped(cluster: Cluster) -> Iterator[Cluster]:
    """The cluster with one of its services stopped; it is started again in the end."""
    cluster.services[NAME].signal(signal.SIGTERM)
    assert cluster.services[NAME].entered.wait(30) == 0
    yield cluster
    cluster.restart_service(NAME)


def ends_with(cluster: Cluster, commands: str) -> str:
    """Run a service that can't start; return what it says at last."""
    before = len(cluster.said(NAME))
    running = cluster[NAME].start("sh", "-e", "-c", commands)
    assert running.entered.wait(120) in (1, 2)  # 2: by an argument
    said = cluster.said(NAME)[before:]
    assert "Traceback" not in said
    assert "CHANGE-ME" not in said
    return said.strip().splitlines()[-1]


@pytest.mark.parametrize(
    ("there", "here", "told"),
    [
        ("@db.example.com/", "@db.example.com:5433/", r"UNAVAILABLE\] The metadata database .* can't be reached"),
        ("@db.example.com/", "@nobody.example.com/", r"UNAVAILABLE\] The metadata database .* can't be reached"),
        (":CHANGE-ME@", ":CHANGE-ME-NOT@", r"INVALID_ARGUMENT\].*password|UNAVAILABLE\].*password"),
        ("store:9000", "store:9001", r"the store can't be reached: nobody listens there"),
        ("s3://lake/", "s3://pond/", r"there is no such bucket"),
        ("s3://lake/log", "s3://lake/other", r"LOG_NOT_FOUND\] There is no log at s3://lake/other"),
        ("/tmp/txnlog/service.key", "/tmp/txnlog/none.key", r"none\.key can't be read"),
        ("--port 6650", "--port 6650 --tls-client-ca /tmp/log", r"has no certificate"),
        ("--host ::", "--host 10.77.0.250", r"UNAVAILABLE\] The server can't listen on 10\.77\.0\.250:6650"),
    ],
)
def test_service_says_what_is_missing_and_ends(stopped: Cluster, there: str, here: str, told: str) -> None:
    """Start a service with one thing wrong: it ends with one line, for whoever supervises it to start it again."""
    commands = stopped.service_commands().replace("--host ::", "--host :: --port 6650")
    assert there in commands
    assert re.search(told, ends_with(stopped, commands.replace(there, here)))


def test_service_in_a_container(stopped: Cluster) -> None:
    """Run a service as the first process, as a user without a name and a home, where nothing can be written."""
    host = stopped[NAME]
    (host.tmp / "txnlog").chmod(0o755)
    served = stopped.said(NAME).count("serving on")
    unshare = ("unshare", "--pid", "--mount", "--fork", "--mount-proc", "sh", "-e", "-c", _CONTAINER)
    running = host.start(*unshare, stopped.service_commands())
    stopped.wait_for_service(NAME, served + 1)
    stopped.call("ops", "call", endpoint=f"{NAME}.example.com:6650")
    running.signal(signal.SIGTERM, below=1)
    assert running.entered.wait(30) == 0
    assert stopped.said(NAME).rstrip().endswith("(SIGTERM)")


def test_client_with_proxies_and_ipv6(cluster: Cluster) -> None:
    """Call a service by its IPv6 address, and write to the store, where the environment names proxies that aren't
    there, except for the store."""
    address = f"fd77::{list(cluster.network.hosts).index(f'{OTHER}.example.com') + 1}"
    cluster.certify(OTHER, address)
    cluster.call("ops", "make", topic="bank/public/far")
    names = ("http_proxy", "https_proxy", "grpc_proxy", "all_proxy")
    proxies = " ".join(f"{name}=http://10.77.0.250:1 {name.upper()}=http://10.77.0.250:1" for name in names)
    code = f"export {proxies} no_proxy=store\nexport TXNLOG_ENDPOINT='[{address}]:6650'\n"
    produce = """python -c 'from tests.cluster.client_jobs import *; print(produce("bank/public/far", 0, 5))'"""
    assert cluster.on_client("loader", code + produce) == "[0, 1, 2, 3, 4]\n"
    read = """python -c 'from tests.cluster.client_jobs import *; print(len(read("bank/public/far")))'"""
    nobody = f"export HOME=/nonexistent\n{_NOBODY} {read}"
    assert cluster.on_client("booking", code + nobody) == "10\n"
