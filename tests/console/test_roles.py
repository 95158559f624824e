"""What a visitor of the console sees and does is what its token may."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.access.authority import Signer
from tests.console.asked import Asked
from txn_source.console import snapshot
from txn_source.console.api import overview
from txn_source.console.app import CHANGES, LOOKS
from txn_source.metadata.access.audit import Audit
from txn_source.metadata.access.door import Door
from txn_source.metadata.access.keys import Keys
from txn_source.metadata.access.limits import Limits, Usage
from txn_source.metadata.access.tokens import Verifier

BANK, SHOP = "persistent://bank/main/payments", "persistent://shop/main/orders"


class Roled(Asked):
    """A console that asks for tokens, with two tenants' topics, and a transaction that wrote to both."""

    def __init__(self, folder: Path, limits: Limits | None = None) -> None:
        self.signer = Signer(folder)
        self.audit = folder / "audit.log"
        audit = Audit(self.audit)
        super().__init__(
            folder / "log", Door(Verifier(Keys([self.signer.public_file])), Usage(limits or Limits()), audit)
        )
        self.stack.callback(audit.close)
        for topic in (BANK, SHOP):
            self.log.create_topic(topic)
            self.log.create_subscription(topic, "s", initial_position="earliest")
        txn = self.log.begin_transaction()
        for topic in (BANK, SHOP):
            with self.log.producer(topic, name=f"writer-of-{topic[13:17]}") as producer:
                producer.send(b"secret", txn=txn)
                producer.flush()
                producer.send(b"behind")
        self.txn = str(txn.id)

    def token(self, who: str = "alice", **roles: list[str]) -> str:
        return self.signer.token(who, **roles)


@pytest.fixture
def roled(tmp_path: Path) -> Iterator[Roled]:
    with Roled(tmp_path) as made:
        yield made


def test_without_a_token_nothing_is_answered(roled: Roled) -> None:
    """Ask for everything without a token, and with bad ones; the page itself is for everybody."""
    for path in LOOKS:
        answer = roled.get(path, topic=BANK, name="s", partition=0)
        assert (answer.status, answer.code) == (401, "UNAUTHENTICATED"), path
        assert answer.headers["www-authenticate"] == "Bearer"
    for path in CHANGES:
        assert roled.post(path, {}).status == 401
    for token in ("x", roled.token()[:-4] + "AAAA"):
        assert roled.get("overview", token).status == 401
    assert roled.ask("GET", "/").status == 200


def test_a_token_that_has_ended_is_told(roled: Roled) -> None:
    """Show one of an hour ago."""
    ended = roled.signer.sign(roled.signer.claims() | {"exp": int(time.time()) - 3600})
    answer = roled.get("overview", ended)
    assert answer.status == 401
    assert "expired" in answer.json["error"]["fact"]


@pytest.mark.parametrize("role", ["consume", "admin", "produce"])
def test_others_topics_are_not_shown(roled: Roled, role: str) -> None:
    """Look with a role for one tenant: the other one's names appear in no answer."""
    token = roled.token(**{role: ["bank/*"]})
    listed = [roled.get(path, token) for path in ("topics", "partitions", "blockers", "subscriptions", "overview")]
    named = [roled.get(path, token, name=BANK) for path in ("topic",)]
    for answer in (*listed, *named):
        assert answer.status == 200
        assert b"shop" not in answer.body
        assert b"writer-of-shop" not in answer.body
    topics, _, blockers, subscriptions, overview = (answer.json for answer in listed)
    assert [row["name"] for row in topics["rows"]] == [BANK]
    assert (overview["topics"], overview["messages"], overview["held_back_messages"]) == (1, 2, 2)
    assert overview["doomed_files"] is None
    [row] = blockers["rows"]
    assert (row["held_back_messages"], row["producers"], row["may_abort"]) == (2, ["writer-of-bank"], False)
    knows = role != "produce"
    assert len(subscriptions["rows"]) == knows
    assert (topics["rows"][0]["backlog"] is not None) == knows
    assert bool(row["subscriptions"]) == knows


def test_the_history_is_of_what_is_seen(roled: Roled, monkeypatch: pytest.MonkeyPatch) -> None:
    """Look twice with a role for one tenant, and as who watches all: each has its own past."""
    monkeypatch.setattr(snapshot, "RATE_S", 0.0)
    one, everything = roled.token(consume=["bank/*"]), roled.token(monitor=["*"])
    roled.get("overview", one)
    with roled.log.producer(SHOP) as producer:
        producer.send(b"more")
    roled.get("overview", one)
    own, whole = (roled.get("overview", token).json["history"] for token in (one, everything))
    assert own["held_back_messages"] == [2, 2, 2]
    assert whole["held_back_messages"][:3] == [4, 5, 5]
    assert own["rate_messages"] == [None, 0, 0]
    assert whole["rate_messages"][1] > 0
    assert own["open_transactions"] == [None] * 3


def test_what_waits_elsewhere_is_not_told(roled: Roled, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a transaction hold back others' messages on one tenant's topic alone: it is critical to that one."""
    monkeypatch.setattr(overview, "_SLOW_MS", 0)
    monkeypatch.setattr(overview, "_STUCK_MS", 0)
    roled.post("transactions/abort", {"txn": roled.txn}, roled.token(admin=["*"]))
    txn = roled.log.begin_transaction()
    for topic in (BANK, SHOP):
        with roled.log.producer(topic) as producer:
            producer.send(b"m", txn=txn)
            producer.flush()
            if topic == SHOP:
                producer.send(b"behind")
    for tenant, severity in (("bank", "warning"), ("shop", "critical")):
        [point] = roled.get("overview", roled.token(produce=[f"{tenant}/*"])).json["attention"]
        assert (point["code"], point["severity"]) == ("TRANSACTION_HOLDS_BACK", severity)


def test_others_topics_can_not_be_named(roled: Roled) -> None:
    """Name the other tenant's topic, and one that isn't there: the same is answered, so nothing is learnt."""
    token = roled.token(consume=["bank/*"], admin=["bank/*"])
    of = {"name": "s", "to": {"at": "latest"}}
    for there in (SHOP, "persistent://shop/main/nothing"):
        answers = [
            roled.get("topic", token, name=there),
            *(roled.get(path, token, topic=there) for path in ("partitions", "messages", "subscriptions", "policies")),
            *(roled.get(path, token, topic=there, partition=0) for path in ("partition", "ledgers")),
            *(roled.get(path, token, topic=there, name="s") for path in ("subscription", "subscription_partitions")),
            roled.post("subscriptions/preview", of | {"topic": there}, token),
            roled.post("subscriptions/seek", of | {"topic": there, "epoch": 0}, token),
        ]
        assert [answer.code for answer in answers] == ["PERMISSION_DENIED"] * len(answers)
        assert {answer.status for answer in answers} == {403}
    assert roled.log.subscription(SHOP, "s").epoch == 0


def test_only_who_may_administer_all_of_it_aborts(roled: Roled) -> None:
    """Abort a transaction that wrote to two tenants' topics, with a role for one, and then for both; all is noted."""
    for token in (roled.token("bob", admin=["bank/*"]), roled.token("bob", consume=["*"], produce=["*"])):
        answer = roled.post("transactions/abort", {"txn": roled.txn}, token)
        assert (answer.status, answer.code) == (403, "PERMISSION_DENIED")
        assert not roled.get("blockers", token).rows[0]["may_abort"]
    carol = roled.token("carol", admin=["bank/*", "shop/*"])
    assert roled.get("blockers", carol).rows[0]["may_abort"]
    assert roled.post("transactions/abort", {"txn": roled.txn}, carol).status == 200
    lines = [json.loads(line) for line in roled.audit.read_text().splitlines()]
    assert [(line["who"], line["call"], line["outcome"]) for line in lines] == [
        ("bob", "EndTransaction", "PERMISSION_DENIED"),
        ("bob", "EndTransaction", "PERMISSION_DENIED"),
        ("carol", "EndTransaction", "ok"),
    ]
    assert all(line["from"].startswith("console:127.0.0.1:") for line in lines)


def test_who_watches_sees_figures_and_no_messages(roled: Roled) -> None:
    """Look as a monitor of the whole log: all figures, subscriptions too, but neither messages nor changes."""
    token = roled.token(monitor=["*"])
    assert roled.get("overview", token).json["topics"] == 2
    assert len(roled.get("subscriptions", token).rows) == 2
    assert roled.get("topic", token, name=BANK).json["schema"] is None
    assert len(roled.get("blockers", token).rows[0]["partitions"]) == 2
    roled.post("transactions/abort", {"txn": roled.txn}, roled.token(admin=["*"]))
    roled.log.roll_ledger(BANK)
    roled.log.offload(BANK)
    for who, tells in ((token, False), (roled.token(produce=["bank/*"]), True)):
        strip = roled.get("partition", who, topic=BANK, partition=0).json["strip"]
        first = strip["ledgers"][0]
        assert (first["tiered"], first["tier_uri"] is not None) == (True, tells)
        assert (roled.get("ledgers", who, topic=BANK, partition=0).rows[1]["tier_uri"] is not None) == tells
    assert roled.get("messages", token, topic=BANK).status == 403
    assert roled.post("transactions/abort", {"txn": roled.txn}, token).status == 404
    assert roled.get("about", token).json["may"] == {"administer": False, "monitor": True}


def test_messages_need_the_role_to_consume(roled: Roled) -> None:
    """Read messages with each role."""
    query: dict[str, Any] = {"topic": BANK, "level": "read_uncommitted"}
    for roles, status in (({"produce": ["*"]}, 403), ({"consume": ["shop/*"]}, 403), ({"consume": ["bank/*"]}, 200)):
        for more in ({}, {"key": "k"}, {"from_": "earliest"}, {"partition": 0, "full": 1, "position": "1:0:0"}):
            answer = roled.get("messages", roled.token(**roles), **query, **more)
            assert answer.status == status
            assert (b"secret" in answer.body) <= (status == 200)


def test_odd_texts_are_refused(roled: Roled) -> None:
    """Name subscriptions and transactions by texts that no database and no wire takes."""
    token = roled.token(admin=["*"])
    for name in ("\x00", "\ud800", "a" * 100_000, ""):
        of = {"topic": BANK, "name": name, "to": {"at": "latest"}}
        assert roled.post("subscriptions/preview", of, token).status in (400, 404), name[:9]
        assert roled.post("transactions/abort", {"txn": name}, token).status == 400
    for epoch in (-1, 1.0, True, "0", 1 << 62, None):
        of = {"topic": BANK, "name": "s", "to": {"at": "latest"}, "epoch": epoch}
        assert roled.post("subscriptions/seek", of, token).status == 400


def test_a_seek_needs_the_role_to_consume(roled: Roled) -> None:
    """Preview and seek with each role; the seek is noted."""
    of = {"topic": BANK, "name": "s", "to": {"at": "latest"}}
    for roles, status in (({"produce": ["*"]}, 403), ({"monitor": ["*"]}, 403), ({"consume": ["bank/*"]}, 200)):
        token = roled.token(**roles)
        assert roled.post("subscriptions/preview", of, token).status == status
        assert roled.post("subscriptions/seek", of | {"epoch": 0}, token).status == status
    assert '"SeekSubscription"' in roled.audit.read_text()
    assert roled.log.subscription(BANK, "s").epoch == 1


def test_limits_hold_for_the_console(tmp_path: Path) -> None:
    """Ask more often than an identity may."""
    with Roled(tmp_path, Limits(calls=0.01)) as roled:
        token = roled.token(admin=["*"])
        statuses = [roled.get("about", token).status for _ in range(3)]
        assert statuses[-1] == 429
        assert roled.get("about", roled.token("bob", admin=["*"])).status == 200


def test_answers_count_against_their_limit(tmp_path: Path) -> None:
    """Look at figures, which no call to the service answers, until there were too many bytes of them."""
    with Roled(tmp_path, Limits(answer_bytes=300)) as roled:
        token = roled.token(monitor=["*"])
        statuses = [roled.get("topics", token).status for _ in range(4)]
        assert (statuses[0], statuses[-1]) == (200, 429)
