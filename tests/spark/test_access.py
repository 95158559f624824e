"""Spark against a service with TLS and tokens: queries, the catalog, and where the secret isn't."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.access.authority import Authority, Signer
from tests.access.conftest import Guarded
from tests.spark.plain import schema_of, source_of
from txn_source.metadata.access.certificates import server_credentials
from txn_source.spark.catalog.real_time import follow, real_time
from txn_source.spark.options import BatchReadOptions, check_catalog_options

DOCS = (Path(__file__).parents[2] / "docs" / "access.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    folder = tmp_path_factory.mktemp("access")
    authority, signer = Authority(folder, "ca"), Signer(folder)
    with Guarded(folder / "log", signer, tls=server_credentials(*authority.issue("service"))) as made:
        yield made


@pytest.fixture
def options(secured: Guarded) -> dict[str, str]:
    folder = secured.root.parent
    file = folder / "reader.token"
    file.write_text(secured.signer.token("spark", produce=["bank/*"], consume=["bank/*"]))
    return {"endpoint": secured.server.address, "tlsCa": str(folder / "ca.pem"), "tokenFile": str(file)}


def test_queries_show_a_token(spark: SparkSession, options: dict[str, str], secured: Guarded, tmp_path: Path) -> None:
    """Write, read, stream, and read as the document says; without a token it is refused in one line."""
    frame = spark.createDataFrame([(bytearray(b"k"), bytearray(b"v"))], "key binary, value binary")
    frame.coalesce(1).write.format("txnlog").options(**options, topic="bank/public/orders").mode("append").save()
    [line] = re.findall(r"```python\n(spark\.read.*?)\n```", DOCS, re.DOTALL)
    for name, value in zip(("localhost:6650", "ca.crt", "reader.token"), options.values(), strict=True):
        line = line.replace(name, value)
    read = eval(line, {"spark": spark})
    assert [bytes(row.value) for row in read.collect()] == [b"v"]
    stream = spark.readStream.format("txnlog").options(
        **options, topic="bank/public/orders", startingOffsets="earliest"
    )
    into = {"topic": "bank/public/bills", "checkpointLocation": str(tmp_path / "c"), **options}
    rows = stream.options(metadataColumns="none", startingOffsets="earliest").load()
    writing = rows.writeStream.format("txnlog").options(**into).trigger(availableNow=True)
    writing.start().awaitTermination()
    reading = secured.open(tls_ca=options["tlsCa"], token_file=options["tokenFile"])
    assert reading.scan("bank/public/bills").read_all().num_rows == 1
    secret = Path(options["tokenFile"]).read_text()[-40:]
    assert secret not in read._jdf.queryExecution().toString()
    without = {name: value for name, value in options.items() if name != "tokenFile"}
    with pytest.raises(Exception, match="TXNLOG_UNAUTHENTICATED"):
        spark.read.format("txnlog").options(**without, topic="bank/public/orders").load()
    with pytest.raises(Exception, match=r"TXNLOG_PERMISSION_DENIED.*shop/public/orders"):
        spark.read.format("txnlog").options(**options, topic="shop/public/orders").load()


def test_real_time_shows_on_executors_what_the_driver_has_in_its_environment(
    options: dict[str, str], secured: Guarded, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Plan with TLS and token from the environment, and read a task without it."""
    given = {"endpoint": options["endpoint"], "topic": "bank/public/orders", "isolationLevel": "read_uncommitted"}
    log = secured.open(tls_ca=options["tlsCa"], token_file=options["tokenFile"])
    with log.producer("bank/public/orders") as producer:
        producer.send(b"v")
    monkeypatch.setenv("TXNLOG_TLS_CA", options["tlsCa"])
    monkeypatch.setenv("TXNLOG_TOKEN_FILE", options["tokenFile"])
    source = source_of(given | {"startingOffsets": "earliest", "consistentCut": "false"})
    start = json.dumps(source.streamReader(source.schema()).initialOffset())
    planned = real_time(given, source.schema().json(), start, 1)
    monkeypatch.delenv("TXNLOG_TLS_CA")
    monkeypatch.delenv("TXNLOG_TOKEN_FILE")
    [begin] = planned["tasks"]
    answer = follow(planned["options"], planned["schema"], begin, 1000)
    assert answer is not None
    assert answer["rows"]


@pytest.mark.parametrize("name", ["token", "TOKEN", "authorization"])
def test_token_is_no_option(name: str) -> None:
    """Give the token itself to a query and a catalog: refused, without showing it."""
    given = {"endpoint": "h:1", "topic": "orders", name: "my-secret"}
    for parse in (BatchReadOptions.parse, check_catalog_options):
        with pytest.raises(ValueError, match="name that by 'tokenFile'") as caught:
            parse({n: v for n, v in given.items() if n != "topic" or parse == BatchReadOptions.parse})
        assert "my-secret" not in str(caught.value)
    for use in (lambda: source_of(given).schema(), lambda: source_of(given).writer(schema_of("value binary"), False)):
        with pytest.raises(ValueError, match="name that by 'tokenFile'") as seen:
            use()
        assert "my-secret" not in str(seen.value)


@pytest.mark.long
def test_tables_of_a_log_keep_the_path_of_the_token(
    spark: SparkSession, options: dict[str, str], secured: Guarded
) -> None:
    """Make tables of a log that was opened with a token file, and one with the token itself."""
    from txn_source.spark import create_tables

    shown = {"tls_ca": options["tlsCa"], "token_file": options["tokenFile"]}
    names = create_tables(spark, secured.open(**shown), namespace="bank/public", database="with_tokens")
    assert sorted(names) == ["bank_public_bills", "bank_public_orders"]
    assert spark.table("with_tokens.bank_public_orders").count() >= 0
    spark.sql("DROP DATABASE with_tokens CASCADE")
