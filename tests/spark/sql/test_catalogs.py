"""Catalogs of a session: their options, and the process that answers them."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import txn_source
from tests.access.authority import Authority, Signer
from tests.selection import for_each
from tests.spark.sql.conftest import Statements, add_catalog
from txn_source import InvalidArgumentError
from txn_source.client.target import Target
from txn_source.metadata.access.certificates import server_credentials
from txn_source.metadata.access.door import Door
from txn_source.metadata.access.keys import Keys
from txn_source.metadata.access.tokens import Verifier
from txn_source.metadata.service.server import Server
from txn_source.spark.options import check_catalog_options


@for_each(
    ("name", "options", "why"),
    [
        ("w1", {}, "The catalog w1 has neither a path nor an endpoint. Set spark.sql.catalog.w1.path"),
        ("w2", {"path": "/x", "endpoint": "h:1"}, "The catalog w2 has both a path and an endpoint."),
        ("w3", {"path": "/nothing/here"}, "[TXNLOG_LOG_NOT_FOUND]"),
        ("w4", {"path": "{root}", "isolationLevl": "x"}, "Did you mean 'isolationLevel'?"),
    ],
)
def test_wrong_options_are_told_at_the_first_use(
    bank: Statements, name: str, options: dict[str, str], why: str
) -> None:
    add_catalog(bank.spark, name, **{k: v.replace("{root}", str(bank.log.root)) for k, v in options.items()})
    for _ in range(2):  # the second use is told the same
        assert why in bank.refused(f"SHOW TABLES IN {name}.public")


@for_each(
    ("option", "value", "why"),
    [
        ("allowdrops", "true", "Did you mean 'allowDrop'?"),
        ("topic", "orders", "The option 'topic' is for queries: the tables of a catalog are topics."),
        ("allowDrop", "perhaps", "'perhaps' is neither true nor false."),
        ("kafka.bootstrap.servers", "h:1", "There is no option 'kafka.bootstrap.servers' here."),
        ("insertable", "true", "is for CREATE TABLE only"),
    ],
)
def test_options_that_no_catalog_has_are_refused(option: str, value: str, why: str) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        check_catalog_options({"path": "/x", option: value})
    assert why in str(caught.value)
    check_catalog_options({"path": "/x", "ALLOWDROP": "True", "isolationlevel": "x", "txnAppId": "a"})


def test_catalog_of_a_service_shows_the_same_tables(orders: Statements, root: Path) -> None:
    with Server(Target.of(root, None).service(), "127.0.0.1", 0) as server:
        remote = add_catalog(orders.spark, "remote", endpoint=server.address)
        table = f"{remote}.{orders.tenant}.orders"
        orders.sql(f"INSERT INTO {table} VALUES (4, 4.5, 'd')")
        joined = f"SELECT l.id FROM {table} r JOIN {{ns}}.orders l ON r.id = l.id WHERE l.id > 2"
        assert orders.rows(joined) == [(3,), (4,)]
    assert orders.rows("SELECT id FROM {ns}.orders WHERE id > 3") == [(4,)]


def test_catalog_shows_a_service_a_token(orders: Statements, root: Path, tmp_path: Path) -> None:
    """Query over TLS with a token that may consume; another one, which may not, is refused, and no plan has either."""
    authority, signer = Authority(tmp_path), Signer(tmp_path)
    door = Door(Verifier(Keys([signer.public_file])))
    tls = server_credentials(*authority.issue("service"))
    file = tmp_path / "token"
    with Server(Target.of(root, None).service(), "127.0.0.1", 0, tls=tls, door=door) as server:
        shown = {"endpoint": server.address, "tlsCa": str(authority.ca), "tokenFile": str(file)}
        file.write_text(signer.token("spark", consume=[f"{orders.tenant}/*"]))
        table = f"{add_catalog(orders.spark, 'guarded', **shown)}.{orders.tenant}.orders"
        assert len(orders.rows(f"SELECT id FROM {table}")) == 3
        plan = orders.rows(f"EXPLAIN EXTENDED SELECT id FROM {table}")[0][0]
        assert file.read_text()[-40:] not in plan
        given = f"SELECT id FROM {table} WITH (tokenFile = 'x')"
        assert "says itself what it is" in orders.refused(given)
        file.write_text(signer.token("spark", consume=["other/*"]))
        assert "[TXNLOG_PERMISSION_DENIED]" in orders.refused(f"SELECT max(id) FROM {table}")


@pytest.mark.long
def test_log_that_is_made_anew_is_seen(bank: Statements, tmp_path: Path) -> None:
    """Remove a log that a catalog has used, look again, and make another one there."""
    name = add_catalog(bank.spark, "anew", path=str(tmp_path / "log"))
    with txn_source.connect(tmp_path / "log") as log:
        log.create_topic("old")
    assert [row[1] for row in bank.rows(f"SHOW TABLES IN {name}.public")] == ["old"]
    shutil.rmtree(tmp_path / "log")
    assert "[TXNLOG_LOG_NOT_FOUND]" in bank.refused(f"SHOW TABLES IN {name}.public")
    with txn_source.connect(tmp_path / "log") as log:
        log.create_topic("new")
    assert [row[1] for row in bank.rows(f"SHOW TABLES IN {name}.public")] == ["new"]
