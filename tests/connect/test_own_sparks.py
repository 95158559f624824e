"""The catalog in Sparks of their own: the shell ``spark-sql``, a jar of another Spark, a Python that isn't there."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pyarrow as pa
import pyspark
import pytest

import txn_source
from txn_source.spark.catalog.jar import jar
from txn_source.spark.catalog.jar_building import VERSION_ENTRY, spark_jars, spark_version

TIMEOUT_S = 250
OF_THIS_SESSION = ("PYSPARK_SUBMIT_ARGS", "SPARK_CONNECT_MODE_ENABLED", "SPARK_REMOTE")
"""Set by the fixtures of this folder, where their session runs in this process."""
SPARK = spark_version(spark_jars())
SPARK_SQL = Path(pyspark.__file__).parent / "bin" / "spark-sql"


def test_shell_runs_statements(tmp_path: Path, root: Path, log: txn_source.Log) -> None:
    """Give the shell the options that the README names, and statements; one is refused in one line."""
    log.create_topic("orders", schema=pa.schema([("id", pa.int64()), ("who", pa.string())]))
    conf = {
        "spark.ui.enabled": "false",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.sql.catalogImplementation": "in-memory",
        "spark.sql.catalog.bank": "io.txnlog.spark.TxnLogCatalog",
        "spark.sql.catalog.bank.path": str(root),
    }
    statements = (
        "USE bank.public; CREATE TABLE copies (id BIGINT) TBLPROPERTIES ('partitions' = '2');"
        " INSERT INTO orders VALUES (1, 'a'), (2, 'b'); INSERT INTO copies SELECT id + 40 FROM orders;"
        " SELECT 'sum', sum(id) FROM copies WHERE id > 0; SHOW TABLES; SELECT * FROM bank.public.order;"
    )
    run = subprocess.run(
        [SPARK_SQL, "--master", "local[1]", "--jars", jar(), *_conf(conf), "-e", statements],
        capture_output=True, text=True, cwd=tmp_path, timeout=TIMEOUT_S, check=False,
    )  # fmt: skip
    assert "sum\t83" in run.stdout, run.stderr[-2000:]
    assert {"orders", "copies"} <= set(run.stdout.split())
    assert run.returncode != 0
    assert "There is no topic 'order' in this log. Did you mean public.orders?" in run.stdout + run.stderr
    assert sorted(log.scan("copies", columns=["id"]).read_all()["id"].to_pylist()) == [41, 42]


def _conf(settings: dict[str, str]) -> list[str]:
    return [part for name, value in settings.items() for part in ("--conf", f"{name}={value}")]


_OTHER_SESSION = """
import sys
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").config("spark.jars", sys.argv[1])
builder = builder.config("spark.driver.host", "127.0.0.1").config("spark.driver.bindAddress", "127.0.0.1")
builder = builder.config("spark.sql.catalog.bank", "io.txnlog.spark.TxnLogCatalog")
spark = builder.config("spark.sql.catalog.bank.path", sys.argv[2]).getOrCreate()
spark.sparkContext.setLogLevel("OFF")
try:
    spark.sql("SHOW TABLES IN bank.public").show()
except PySparkException as error:
    print("refused:", str(error).splitlines()[0])
"""


@pytest.mark.parametrize(
    ("entry", "change", "python", "why"),
    [
        (
            VERSION_ENTRY,
            (SPARK.encode(), b"3.5.1"),
            sys.executable,
            "[TXNLOG_NO_JAR] The catalog's jar is for Spark 3.5.1, and this is Spark ",
        ),
        (
            "io/txnlog/spark/SparkInternals.class",
            (b"python/PythonUtils$", b"python/PythonUtilz$"),
            sys.executable,
            f"jar is for Spark {SPARK}, and this is Spark {SPARK} (java.lang.NoClassDefFoundError: org/apache",
        ),
        ("", (b"", b""), "/nothing/python", "[TXNLOG_UNAVAILABLE] /nothing/python can't be started"),
    ],
    ids=["another Spark's jar", "a Spark without what it uses", "no Python"],
)
def test_wrong_surroundings_are_told(
    tmp_path: Path, root: Path, log: txn_source.Log, entry: str, change: tuple[bytes, bytes], python: str, why: str
) -> None:
    """Start a Spark with a jar that was made for another one, in a way, and one with a Python that isn't there."""
    assert log.topics() == []
    other = tmp_path / "other.jar"
    with zipfile.ZipFile(jar()) as mine, zipfile.ZipFile(other, "w") as theirs:
        for name in mine.namelist():
            content = mine.read(name)
            theirs.writestr(name, content.replace(*change) if name == entry else content)
    mine = {name: value for name, value in os.environ.items() if name not in OF_THIS_SESSION}
    environment = {**mine, "PYSPARK_PYTHON": python, "PYSPARK_DRIVER_PYTHON": python}
    run = subprocess.run(
        [sys.executable, "-c", _OTHER_SESSION, str(other), str(root)],
        capture_output=True, text=True, env=environment, timeout=TIMEOUT_S,
    )  # fmt: skip
    assert "refused: [TXNLOG_" in run.stdout, run.stderr[-2000:]
    assert why in run.stdout


_PROGRAM = """
import sys
from pyspark.sql import SparkSession
import txn_source.spark

try:
    spark = txn_source.spark.configure(SparkSession.builder, bank=sys.argv[1]).getOrCreate()
    print("tables:", spark.sql("SHOW TABLES IN bank.public").collect(), spark.conf.get("spark.jars"))
except txn_source.TxnLogError as error:
    print("refused:", error)
"""


@pytest.mark.parametrize("given", [True, False], ids=["with its jar", "without"])
def test_submitted_program_has_its_jars_from_its_start(
    tmp_path: Path, root: Path, log: txn_source.Log, given: bool
) -> None:
    """Submit a program that calls ``configure``, with two jars and with none."""
    log.create_topic("orders")
    program, other = tmp_path / "program.py", tmp_path / "other.jar"
    program.write_text(_PROGRAM)
    zipfile.ZipFile(other, "w").close()
    conf = {"spark.ui.enabled": "false", "spark.driver.bindAddress": "127.0.0.1", "spark.driver.host": "127.0.0.1"}
    jars = ["--jars", f"{jar()},{other}"] if given else []
    mine = {name: value for name, value in os.environ.items() if name not in OF_THIS_SESSION}
    run = subprocess.run(
        [SPARK_SQL.with_name("spark-submit"), "--master", "local[1]", *_conf(conf), *jars, program, root],
        capture_output=True, text=True, env={**mine, "PYSPARK_PYTHON": sys.executable}, cwd=tmp_path,
        timeout=TIMEOUT_S, check=False,
    )  # fmt: skip
    if given:
        assert "tables: [Row(namespace='public', tableName='orders'" in run.stdout, run.stderr[-2000:]
        assert "other.jar" in run.stdout
    else:
        why = "[TXNLOG_INVALID_ARGUMENT] spark-submit has started this program without the catalog's jar. Start it with"
        assert f"refused: {why} --jars {jar()}" in run.stdout, run.stderr[-2000:]
