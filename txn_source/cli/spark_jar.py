"""``txnlog spark-jar``: where the jar of the Spark catalog is."""

from __future__ import annotations

from txn_source.cli.output import reports_errors


@reports_errors
def spark_jar() -> None:
    """Print the path of the jar that Spark's catalog of a log needs, for `spark.jars` or `--jars`.

    It is for the Spark that is installed here. In a checkout it is built at first, which needs a JDK.
    """
    from txn_source.spark.catalog.jar import jar

    print(jar())
