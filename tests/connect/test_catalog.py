"""Statements through a catalog over Spark Connect: some of the tests of the classic session, as they are, and more."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
from pyspark.sql import SparkSession

import txn_source
from tests.spark.catalog.transfers import SCHEMA, Transfers
from tests.spark.sql import (
    test_alter_table,
    test_create_as_select,
    test_create_table,
    test_describe,
    test_drop_table,
    test_insert,
    test_names,
    test_time_travel,
)
from tests.spark.sql.conftest import Statements, bank, catalog_log, orders
from tests.spark.sql.conftest import root as root
from txn_source.spark import configure

sales, history = test_names.sales, test_time_travel.history
FIXTURES = (bank, catalog_log, orders)
SAME = (
    test_names.test_tables_are_the_topics_of_a_namespace,
    test_names.test_missing_table_is_told_with_names_that_are_near,
    test_names.test_looking_for_a_table_is_no_error,
    test_create_table.test_columns_have_their_types,
    test_create_table.test_comments_are_kept,
    test_create_table.test_statement_that_is_shown_makes_the_same_table,
    test_describe.test_properties_say_where_they_come_from,
    test_alter_table.test_policies_are_set_and_unset,
    test_drop_table.test_table_is_kept_otherwise,
    test_insert.test_rows_go_to_columns_by_position_by_list_and_by_name,
    test_insert.test_rows_are_one_transaction,
    test_insert.test_what_does_not_fit_is_refused,
    test_create_as_select.test_topic_is_made_and_filled_in_one_transaction,
    test_create_as_select.test_query_that_fails_leaves_no_topic,
    test_create_as_select.test_streams_make_tables,
    test_time_travel.test_table_is_read_as_it_was,
)
"""The tests that run here, too; they take the fixtures above, over this folder's session."""
globals().update({test.__name__: test for test in SAME})


def test_tables_of_a_query_are_read_at_one_cut(bank: Statements) -> None:
    topics = [bank.topic(name) for name in ("a", "b")]
    for partitions, topic in enumerate(topics, 1):
        bank.log.create_topic(topic, partitions, SCHEMA)
    with Transfers(bank.log.root, topics):
        gap = bank.rows("SELECT count(*) - (SELECT count(*) FROM {ns}.b WHERE n >= 0) FROM {ns}.a")
        lonely = bank.rows("SELECT * FROM {ns}.a a FULL JOIN {ns}.b b USING (id, n) WHERE a.id IS NULL OR b.id IS NULL")
    assert (gap, lonely) == ([(0,)], [])


def test_history_in_objects_is_read(orders: Statements) -> None:
    topic = orders.topic("orders")
    orders.log.roll_ledger(topic)
    orders.log.offload(topic)
    query = f"SELECT sum(id), count(who) FROM {{ns}}.orders VERSION AS OF '{orders.log.cut(topic).json()}'"
    assert orders.rows(query) == [(6, 2)]


def test_catalog_of_the_server_is_there(spark: SparkSession, served_root: Path) -> None:
    """Use a catalog that only the server's configuration names."""
    with txn_source.connect(served_root) as log:
        log.create_topic("orders", schema=pa.schema([("id", pa.int64())]))
    spark.sql("INSERT INTO served.public.orders VALUES (1), (2)")
    assert sorted(row.id for row in spark.table("served.public.orders").collect()) == [1, 2]


def test_client_adds_a_catalog(spark: SparkSession, served_root: Path) -> None:
    """Configure a session of the same server with a catalog of its own: the jar is the server's."""
    again = configure(spark.builder, mine=served_root).getOrCreate()
    assert ("default",) not in [tuple(row) for row in again.sql("SHOW NAMESPACES IN mine").collect()]
    assert ("public",) in [tuple(row) for row in again.sql("SHOW NAMESPACES IN mine").collect()]
