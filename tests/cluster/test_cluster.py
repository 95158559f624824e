"""A cluster on hosts that share no folder: what is written is read, once, whatever is killed or cut off."""

from __future__ import annotations

import itertools
import json
import re
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.document import BLOCKS, DOCUMENT, block
from tests.cluster.site import SERVICES, Cluster
from tests.log.reading import eventually

TRANSFERS, COPIES = "bank/public/transfers", "bank/public/copies"
EXECUTOR = "CoarseGrainedExecutorBackend"
FIRST = 1_000_000
"""The transfer of the document."""
_numbers = itertools.count()


def both(transfers: list[int]) -> list[list[Any]]:
    """Return the messages of transfers, sorted."""
    return sorted([number, leg] for number in transfers for leg in ("debit", "credit"))


@pytest.fixture(scope="module")
def written(cluster: Cluster) -> list[int]:
    """Transfers that were written by producers on their host; there are aborted ones beside them."""
    cluster.on_client("ops", block("topics"))
    written: list[int] = cluster.call("loader", "produce", topic=TRANSFERS, first=0, transfers=100)
    cluster.call("loader", "run", code=block("producer"))
    return [*written, FIRST]


@pytest.fixture
def topic(cluster: Cluster, written: list[int]) -> str:
    """A new topic."""
    name = f"bank/public/topic-{next(_numbers)}"
    cluster.call("ops", "make", topic=name)
    return name


def test_hosts_share_nothing(cluster: Cluster) -> None:
    """Write wherever a host can; no other one finds it, and what they have in common can't be written."""
    cluster["loader"].run("sh", "-c", "for each in /tmp /run /dev/shm; do echo x > $each/mine; done")
    for name in ("txnlog-1", "driver"):
        assert cluster[name].run("sh", "-c", "ls /tmp/mine /run/mine /dev/shm/mine 2>/dev/null | wc -l") == "0\n"
    written = f"touch {Path(__file__).parent}/x /usr/x /etc/x 2>/dev/null || echo no"
    assert cluster["loader"].run("sh", "-c", written) == "no\n"


def test_every_command_of_the_document_is_run() -> None:
    """Look for the name of each block in the tests' code; whatever is no command is a picture."""
    code = "".join(path.read_text(encoding="utf-8") for path in Path(__file__).parent.glob("*.py"))
    assert [name for name in BLOCKS if f'block("{name}")' not in code] == []
    assert DOCUMENT.count("```") == 2 * (len(BLOCKS) + 1)


# What goes through Spark and clients


def test_batch(cluster: Cluster, written: list[int]) -> None:
    """Read on the executors what a producer wrote on its own host, at both levels, and by SQL."""
    assert cluster.call("driver", "read", topic=TRANSFERS) == both(written)
    assert len(cluster.call("driver", "read", topic=TRANSFERS, level="read_uncommitted")) == 202
    count = "SELECT leg, count(*) FROM log.bank.public.transfers WHERE transfer < 50 GROUP BY leg"
    below = len([number for number in written if number < 50])
    assert cluster.call("driver", "sql", statement=count) == [["credit", below], ["debit", below]]


def test_real_time(cluster: Cluster, written: list[int]) -> None:
    """Follow the topic on the executors, through the services."""
    assert cluster.call("driver", "watch", topic=TRANSFERS, wanted=202) == 202


def test_subscription(cluster: Cluster, written: list[int]) -> None:
    """Consume on a third host, in two goes and as the document says: each message is received once."""
    first = cluster.call("booking", "consume", topic=TRANSFERS, subscription="booking", most=60)
    second = cluster.call("booking", "consume", topic=TRANSFERS, subscription="booking", most=10_000)
    assert sorted([number, leg] for number, leg, _ in first + second) == both(written)
    printed = cluster.on_client("booking", f'exec python -c "$(cat <<"EOF"\n{block("consumer")}\nEOF\n)"')
    assert len(printed.splitlines()) == len(both(written))


def test_job_of_the_document(cluster: Cluster, written: list[int]) -> None:
    """Run the job until it has copied all that is there: by a stream, through the catalog."""
    ended = block("job").replace("query.awaitTermination()", "query.processAllAvailable(); query.stop()")
    assert "processAllAvailable" in ended
    cluster.call("driver", "run", code=ended)
    assert cluster.call("booking", "read", topic=COPIES) == both(written)


# Who is killed


def hold(cluster: Cluster, name: str) -> None:
    """Have the next task on a worker wait in the middle, and return when it does."""
    (cluster[name].tmp / "held").unlink(missing_ok=True)
    (cluster[name].tmp / "hold").touch()
    eventually((cluster[name].tmp / "held").exists, 60)


def test_job_writes_once_though_a_worker_is_killed(cluster: Cluster, topic: str) -> None:
    """Kill a worker with its executor in the middle of a batch write: each row is there once."""
    cluster.agents["driver"].begin("write", topic=topic, first=1_000, transfers=100)
    hold(cluster, "worker-2")
    cluster.workers["worker-2"].kill()
    assert cluster["worker-2"].kill(EXECUTOR)
    cluster.agents["driver"].end()
    assert cluster.call("booking", "read", topic=topic) == both(list(range(1_000, 1_100)))
    cluster.start_worker("worker-2")


def test_stream_copies_once_though_services_are_killed(cluster: Cluster, written: list[int], topic: str) -> None:
    """Copy a topic while it grows; kill each service in turn, and in between an executor in the middle of a batch."""
    cluster.call("driver", "copy", name="copy", source=TRANSFERS, target=topic, limit=80)
    hold(cluster, "worker-1")
    cluster.services["txnlog-1"].kill()
    cluster.agents["loader"].begin("produce", topic=TRANSFERS, first=10_000, transfers=60)
    assert cluster["worker-1"].kill(EXECUTOR)
    written += cluster.agents["loader"].end()
    cluster.restart_service("txnlog-1")
    cluster.services["txnlog-2"].kill()
    written += cluster.call("loader", "produce", topic=TRANSFERS, first=20_000, transfers=20)
    cluster.call("driver", "drain", name="copy")
    assert cluster.call("booking", "read", topic=topic) == both(written)
    cluster.restart_service("txnlog-2")


# Who is cut off


def waits_for(cluster: Cluster, name: str, other: str) -> bool:
    """True if a host is opening a connection to another one, which doesn't answer."""
    wanted = f"{int.from_bytes(ip_address(cluster[other].address).packed, 'little'):08X}:"
    rows = [line.split() for line in Path(f"/proc/{cluster[name].pid}/net/tcp").read_text().splitlines()[1:]]
    return any(row[2].startswith(wanted) and row[3] == "02" for row in rows)


def test_store_that_is_cut_off_is_waited_for(cluster: Cluster, topic: str) -> None:
    """Unplug the store until a producer has asked for it in vain: it goes on, without an error."""
    cluster.network.unplug("store.example.com")
    cluster.agents["loader"].begin("produce", topic=topic, first=0, transfers=10)
    eventually(lambda: waits_for(cluster, "loader", "store"), 60)
    cluster.network.plug("store.example.com")
    assert cluster.agents["loader"].end() == list(range(10))
    assert cluster.call("booking", "read", topic=topic) == both(list(range(10)))


def test_service_that_is_cut_off_is_left(cluster: Cluster, topic: str) -> None:
    """Unplug the service that a producer is with: it goes on with the other one, without an error."""
    name = cluster.call("loader", "current")
    cluster.network.unplug(name)
    assert cluster.call("loader", "produce", topic=topic, first=0, transfers=10) == list(range(10))
    assert cluster.call("loader", "current") != name
    cluster.network.plug(name)
    assert cluster.call("booking", "read", topic=topic) == both(list(range(10)))


# What is replaced


def test_keys_are_replaced_under_a_stream(cluster: Cluster, topic: str) -> None:
    """Sign new tokens with a new key and take the old one away, while a stream and a producer run: they go on."""
    copies = f"{topic}-copies"
    cluster.call("ops", "make", topic=copies)
    cluster.call("driver", "copy", name="keys", source=topic, target=copies, limit=1_000)
    old = cluster.call("loader", "produce", topic=topic, first=0, transfers=10)
    old_key = (cluster["ops"].tmp / "tokens.pub").read_bytes()
    new_key = cluster.make_tokens()
    cluster.give_keys(old_key + new_key)
    cluster.give_tokens()
    cluster.give_keys(new_key)
    new = cluster.call("loader", "produce", topic=topic, first=100, transfers=10)
    cluster.call("driver", "drain", name="keys")
    assert cluster.call("booking", "read", topic=copies) == both(old + new)


def test_certificate_and_address_are_replaced(cluster: Cluster, written: list[int]) -> None:
    """Give a service a new certificate, and the name of the other one, which is gone: whoever was connected to that
    goes on, within one call."""
    name, other = SERVICES
    endpoint = f"{name}.example.com:6650"
    assert cluster.call("ops", "call", endpoint=endpoint)
    cluster.certify(other, f"{name}.example.com")
    cluster.services[name].kill()
    cluster.network.name_hosts(**{name: cluster[other].address})
    assert cluster.call("ops", "call", endpoint=endpoint)
    assert re.search(r"read \S+service.crt.* again", cluster.said(other))
    cluster.network.name_hosts()
    cluster.restart_service(name)


# What an administrator does


def test_bucket_takes_the_rule(cluster: Cluster) -> None:
    """Give the rule of the document to the store, and read it back."""
    rule = block("lifecycle")
    code = (
        "import boto3, json; s3 = boto3.client('s3', 'us-east-1', endpoint_url='http://store:9000');"
        f"s3.put_bucket_lifecycle_configuration(Bucket='lake', LifecycleConfiguration=json.loads('''{rule}'''));"
        "print(json.dumps(s3.get_bucket_lifecycle_configuration(Bucket='lake')['Rules']))"
    )
    [kept] = json.loads(cluster["ops"].run("python", "-c", code))
    assert kept["AbortIncompleteMultipartUpload"] == {"DaysAfterInitiation": 2}


def test_maintenance(cluster: Cluster, written: list[int]) -> None:
    """Collect garbage and maintain from the administrator's host: nothing that is needed goes."""
    cluster.on_client("ops", block("maintenance"))
    assert cluster.call("booking", "read", topic=TRANSFERS) == both(written)


def test_log_is_served_from_a_backup(cluster: Cluster, written: list[int]) -> None:
    """Dump the database, restore it into another one, and serve that in place of the first: all messages are there."""
    cluster.stop_services()
    cluster.restore(block("backup"))
    for name in SERVICES:
        cluster.restart_service(name)
    assert cluster.call("booking", "read", topic=TRANSFERS) == both(written)
    assert cluster.call("loader", "produce", topic=TRANSFERS, first=90_000, transfers=5)
