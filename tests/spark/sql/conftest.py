"""One log behind one catalog for all statements; each test has a namespace of its own."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

import txn_source

CATALOG = "bank"
ORDERS = pa.table({"id": [1, 2, 3], "amount": [1.5, 2.5, None], "who": ["a", "b", None]})
_NUMBERS = itertools.count()


def add_catalog(spark: SparkSession, name: str, **options: str) -> str:
    """Give a session one more catalog, and return its name."""
    spark.conf.set(f"spark.sql.catalog.{name}", "io.txnlog.spark.TxnLogCatalog")
    for option, value in options.items():
        spark.conf.set(f"spark.sql.catalog.{name}.{option}", value)
    return name


def in_long_runs(*cases: tuple[Any, ...]) -> list[Any]:
    """Return parameters of a test for long runs only: a statement costs Spark a tenth of a second and more."""
    return [pytest.param(*case, marks=pytest.mark.long) for case in cases]


@dataclass(frozen=True)
class Statements:
    """Runs statements, in which ``{ns}`` is the test's namespace in the catalog."""

    spark: SparkSession
    log: txn_source.Log
    tenant: str
    catalog: str = CATALOG

    @property
    def ns(self) -> str:
        """The namespace as SQL names it."""
        return f"{self.catalog}.{self.tenant}"

    def topic(self, name: str) -> str:
        """Return a topic's name in the log."""
        return f"{self.tenant}/default/{name}"

    def sql(self, text: str) -> DataFrame:
        """Run a statement."""
        return self.spark.sql(text.replace("{ns}", self.ns))

    def rows(self, text: str) -> list[tuple[Any, ...]]:
        """Run a query and return its rows, sorted."""
        return sorted((tuple(row) for row in self.sql(text).collect()), key=repr)

    def properties(self, table: str) -> Mapping[str, str]:
        """Return a table's properties as SQL shows them."""
        return dict(self.rows(f"SHOW TBLPROPERTIES {{ns}}.{table}"))  # type: ignore[arg-type]

    def tables(self) -> list[str]:
        """Return the names of the tables."""
        return [name for name in self.log.topics(f"{self.tenant}/default") for name in [name.rsplit("/", 1)[-1]]]

    def refused(self, text: str) -> str:
        """Run a statement that must be refused, and return why: what Spark shows of it has no stack of the JVM."""
        with pytest.raises(PySparkException) as caught:
            self.sql(text).collect()
        shown = str(caught.value).partition("\n\nJVM stacktrace:")[0]  # which Spark Connect adds to whatever it says
        assert "\tat " not in shown, shown
        assert "Py4J" not in shown, shown
        told = [line for line in shown.splitlines() if "[TXNLOG_" in line]
        return told[0][told[0].index("[TXNLOG_") :] if told else shown.splitlines()[0]


@pytest.fixture(scope="session")
def catalog_log(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[txn_source.Log]:
    """The log behind the catalog."""
    root = tmp_path_factory.mktemp("statements") / "log"
    with txn_source.connect(root) as log:
        add_catalog(spark, CATALOG, path=str(root), allowDrop="true")
        yield log


@pytest.fixture
def bank(spark: SparkSession, catalog_log: txn_source.Log) -> Statements:
    """The catalog, and an empty namespace in it."""
    return Statements(spark, catalog_log, f"n{next(_NUMBERS)}")


@pytest.fixture
def orders(bank: Statements) -> Statements:
    """The same with a table ``orders`` of three rows."""
    bank.log.create_topic(bank.topic("orders"), schema=ORDERS.schema)
    with bank.log.producer(bank.topic("orders")) as producer:
        producer.send_batch(ORDERS)
    return bank


@pytest.fixture
def root(catalog_log: txn_source.Log) -> Path:
    """Where the catalog's log lies."""
    return Path(str(catalog_log.root))
