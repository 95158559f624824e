"""Spark's Java classes as an archive that each Java maps (class data sharing): a session then starts in half the CPU.

Tests start dozens of Javas, and each would parse and check some 15,000 classes of Spark's jars. A run of
all has the archive made beside its first tests, in ``build``, from what one short session has loaded. A Java
that finds none, or one of other jars or of another Java, goes on without.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path

_ROOT = Path(__file__).resolve().parent.parent


def archive() -> Path:
    """Return where the archive is, or will be."""
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home, "bin", "java")) if home else shutil.which("java") or "java"
    of = sha256(f"{os.path.realpath(java)} {version('pyspark')}".encode()).hexdigest()[:8]
    return _ROOT / "build" / f"spark-classes-{of}.jsa"


def options() -> str:
    """Return the options with which Java takes the archive if it can, and says nothing if it can't."""
    return f"-XX:SharedArchiveFile={archive()} -Xshare:auto -Xlog:cds*=off"


SHORT_LIVED = f"-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:-UsePerfData {options()}"
"""Options of every Java that tests start: none lives long enough for its best compiler to pay."""


def begin() -> subprocess.Popen[bytes] | None:
    """Have the archive made by a process that runs beside this one, and logs; return None if it is there."""
    if archive().exists():
        return None
    archive().parent.mkdir(exist_ok=True)
    with archive().with_suffix(".log").open("wb") as log:
        return subprocess.Popen(
            [sys.executable, "-m", "tests.java_classes"],
            cwd=_ROOT,
            env={**os.environ, "PYTHONPATH": f"{_ROOT}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )


def make(making: Path, folder: Path) -> None:
    """Write the archive to a file, of what a session has loaded that reads and writes a log in each way."""
    usual = os.environ["SPARK_SUBMIT_OPTS"].replace(options(), "")  # Java refuses to begin without one to make one
    os.environ["SPARK_SUBMIT_OPTS"] = f"{usual} -Xlog:cds*=off -XX:ArchiveClassesAtExit={making}"
    from pyspark.sql import SparkSession

    import txn_source
    from txn_source.spark.catalog.jar import jar

    with txn_source.connect(folder / "log") as log:
        for topic in ("orders", "copy"):
            log.create_topic(topic, schema="id BIGINT, name STRING")
        with log.producer("orders") as producer:
            producer.send({"id": 1, "name": "a"})
    spark = (
        SparkSession.builder.master("local[1]")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.jars", str(jar()))
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "1")
        .config("spark.sql.warehouse.dir", str(folder / "warehouse"))
        .config("spark.sql.catalog.log", "io.txnlog.spark.TxnLogCatalog")
        .config("spark.sql.catalog.log.path", str(folder / "log"))
        .getOrCreate()
    )
    log_options = {"path": str(folder / "log"), "topic": "orders"}
    spark.read.format("txnlog").options(**log_options).load().groupBy("name").count().orderBy("name").toArrow()
    spark.sql("INSERT INTO log.public.orders SELECT id + 1, name FROM log.public.orders WHERE id = 1")
    spark.table("log.public.orders").write.parquet(str(folder / "parquet"))
    stream = spark.readStream.format("txnlog").options(**log_options).load().select("id", "name")
    sink = stream.writeStream.format("txnlog").options(path=str(folder / "log"), topic="copy")
    sink.option("checkpointLocation", str(folder / "sink")).trigger(availableNow=True).start().awaitTermination()
    each = stream.writeStream.foreachBatch(lambda batch, _: batch.collect()).trigger(availableNow=True)
    each.option("checkpointLocation", str(folder / "each")).start().awaitTermination()
    java = spark.sparkContext._gateway.proc  # type: ignore[union-attr]
    spark.stop()
    java.stdin.close()  # it ends then, and writes the archive
    java.wait()


def main() -> None:
    """Make the archive, whole or not at all."""
    with tempfile.TemporaryDirectory(dir=archive().parent) as folder:
        making = Path(folder, "classes")
        make(making, Path(folder))
        making.replace(archive())


if __name__ == "__main__":
    main()
