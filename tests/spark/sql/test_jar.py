"""The jar of the catalog: built once for each version of its sources and of Spark, or refused in one sentence."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import ClassVar

import pyspark
import pytest
from pyspark.sql import SparkSession

from txn_source import InvalidArgumentError, NoJarError
from txn_source.spark import configure
from txn_source.spark.catalog import jar as of_jar
from txn_source.spark.catalog.jar import fits, jar
from txn_source.spark.catalog.jar_building import VERSION_ENTRY, NotBuiltError, spark_jars, spark_version

COMPILER = """#!/bin/sh
while [ "$1" != -d ]; do shift; done
mkdir -p "$2/io/txnlog/spark" && echo compiled > "$2/io/txnlog/spark/A.class"
"""
"""A quick one, where it makes no difference what is compiled."""
FAILING_COMPILER = """#!/bin/sh
echo 'A.java:1: error: cannot find symbol' >&2
exit 1
"""
SOURCE = "package io.txnlog.spark; class A { int a() { return %d; } }"


@pytest.fixture
def sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with one Java class in place of the catalog's, and an empty cache."""
    folder = tmp_path / "java"
    folder.mkdir()
    (folder / "A.java").write_text(SOURCE % 1)
    monkeypatch.setattr(of_jar, "_SOURCES", (folder,))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return folder


@pytest.fixture
def quick(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A compiler that takes no time."""
    compiler = tmp_path / "jdk" / "bin" / "javac"
    compiler.parent.mkdir(parents=True)
    compiler.write_text(COMPILER)
    compiler.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "jdk"))


def cached(tmp_path: Path) -> list[str]:
    return sorted(path.name for path in (tmp_path / "cache" / "txnlog").iterdir())


@pytest.mark.usefixtures("quick")
def test_jar_is_built_once_for_each_version_of_its_sources(sources: Path, tmp_path: Path) -> None:
    """Ask twice, change a source, ask, change it back and ask: two jars, each with its Spark's version."""
    first = jar()
    written = first.stat().st_mtime_ns
    assert jar() == first
    assert first.stat().st_mtime_ns == written
    (sources / "A.java").write_text(SOURCE % 2)
    second = jar()
    (sources / "A.java").write_text(SOURCE % 1)
    assert jar() == first != second
    assert cached(tmp_path) == sorted([first.name, second.name])
    with zipfile.ZipFile(first) as archive:
        assert "io/txnlog/spark/A.class" in archive.namelist()
        assert archive.read(VERSION_ENTRY).decode() == pyspark.__version__


@pytest.mark.usefixtures("quick")
def test_many_may_build_at_once(sources: Path, tmp_path: Path) -> None:
    """Ask from several threads at once, where there is none: all get one whole jar, and nothing else is left."""
    with ThreadPoolExecutor(3) as threads:
        paths = {found.result() for found in [threads.submit(jar) for _ in range(3)]}
    [path] = paths
    assert zipfile.ZipFile(path).testzip() is None
    assert cached(tmp_path) == [path.name]


@pytest.mark.usefixtures("quick")
def test_interrupted_build_leaves_nothing(sources: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Interrupt the build when all is compiled; the next one makes the jar."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("os.replace", interrupt)
        with pytest.raises(KeyboardInterrupt):
            jar()
    assert cached(tmp_path) == []
    assert jar().exists()


@pytest.mark.usefixtures("quick")
def test_shipped_jar_is_taken_for_its_minor_version(
    sources: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ship a jar for this Spark's minor version, and one for another: the first is taken, the second isn't."""
    shipped = tmp_path / "jars"
    shipped.mkdir()
    monkeypatch.setattr(of_jar, "_SHIPPED", shipped)
    (shipped / "txnlog-spark-3.5.1.jar").touch()
    assert jar().is_relative_to(tmp_path / "cache")
    minor = ".".join(pyspark.__version__.split(".")[:2])
    (shipped / f"txnlog-spark-{minor}.99.jar").touch()
    assert jar() == shipped / f"txnlog-spark-{minor}.99.jar"
    assert not fits("4.2.0", "4.3.0")


def test_missing_compiler_is_told(sources: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave out the JDK: what is said names how to get one, on Debian and macOS."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(NoJarError, match=r"no javac in PATH.*apt-get install openjdk-17-jdk-headless.*brew install"):
        jar()
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "none"))
    with pytest.raises(NoJarError, match=r"no javac in .*none/bin, where JAVA_HOME points"):
        jar()


@pytest.mark.usefixtures("quick")
def test_what_cannot_be_compiled_is_told(sources: Path, tmp_path: Path) -> None:
    """Let the compiler fail: its first error stands in ours."""
    (tmp_path / "jdk" / "bin" / "javac").write_text(FAILING_COMPILER)
    with pytest.raises(NoJarError, match=rf"can't compile the catalog for Spark {pyspark.__version__}.*cannot find"):
        jar()
    assert cached(tmp_path) == []


def test_missing_spark_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Point SPARK_HOME to a folder without Spark, and to one whose jars tell no version."""
    monkeypatch.setenv("SPARK_HOME", str(tmp_path))
    with pytest.raises(NoJarError, match=r"Spark's jars are not in .*Install pyspark, or point SPARK_HOME"):
        jar()
    (tmp_path / "jars").mkdir()
    (tmp_path / "jars" / "spark-sql_x.jar").touch()
    with pytest.raises(NoJarError, match="tells the version of Spark"):
        jar()


@pytest.mark.usefixtures("quick")
def test_cache_of_others_is_not_trusted(sources: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let others write to the cache's folder: another one is taken, and none at all is an error."""
    (tmp_path / "cache" / "txnlog").mkdir(parents=True)
    (tmp_path / "cache" / "txnlog").chmod(0o777)
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))
    made = jar()
    assert made.is_relative_to(tmp_path / "temporary")
    made.parent.chmod(0o777)
    with pytest.raises(NoJarError, match="XDG_CACHE_HOME"):
        jar()


@pytest.mark.long
def test_build_needs_no_package(sources: Path, tmp_path: Path) -> None:
    """Build as the package's build does, with the module alone in an interpreter without site-packages."""
    module = Path(of_jar.__file__).with_name("jar_building.py")
    target = tmp_path / "made.jar"
    code = (
        f"import sys; sys.path.insert(0, {str(module.parent)!r}); import jar_building as j; from pathlib import Path\n"
    )
    code += f"j.build(Path({str(sources)!r}), Path({str(spark_jars())!r}), Path({str(target)!r}))"
    subprocess.run([sys.executable, "-I", "-S", "-c", code], check=True)
    with zipfile.ZipFile(target) as archive:
        assert "io/txnlog/spark/A.class" in archive.namelist()
    assert spark_version(spark_jars()) == pyspark.__version__
    with pytest.raises(NotBuiltError):
        spark_jars(tmp_path)


def test_command_prints_the_path() -> None:
    """Run the command: it prints what the function returns."""
    run = subprocess.run([sys.executable, "-m", "txn_source.cli", "spark-jar"], capture_output=True, text=True)
    assert (run.returncode, run.stdout.strip()) == (0, str(jar()))


class Builder:
    """Notes what a builder is told."""

    def __init__(self, **options: str) -> None:
        self._options = options

    def config(self, name: str, value: str) -> Builder:
        self._options[name] = value
        return self


@pytest.fixture
def no_session(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SparkSession, "getActiveSession", lambda: None)


@pytest.mark.usefixtures("no_session")
def test_builder_is_told_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """Configure three catalogs over a builder with jars: the jars stay, and each value becomes what it is."""
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    builder = Builder(**{"spark.jars": "a.jar,b.jar"})
    logs = {"bank": Path("/data/log"), "shop": "localhost:6650,other:6651", "test": {"path": "/t", "allowDrop": True}}
    assert configure(builder, **logs) is builder  # type: ignore[arg-type]
    assert configure(builder) is builder  # type: ignore[arg-type,comparison-overlap]
    assert builder._options == {
        "spark.jars": f"a.jar,b.jar,{jar()}",
        **{f"spark.sql.catalog.{name}": "io.txnlog.spark.TxnLogCatalog" for name in logs},
        "spark.sql.catalog.bank.path": "/data/log",
        "spark.sql.catalog.shop.endpoint": "localhost:6650,other:6651",
        "spark.sql.catalog.test.path": "/t",
        "spark.sql.catalog.test.allowDrop": "true",
    }


@pytest.mark.usefixtures("no_session")
def test_interpreter_is_set_where_nobody_said_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Configure with and without PYSPARK_PYTHON and a setting of one's own; over Connect it is the server's."""
    setting = "spark.pyspark.python"
    monkeypatch.setenv("PYSPARK_PYTHON", "/usr/bin/python3")
    assert setting not in configure(Builder(), bank="/log")._options  # type: ignore[arg-type,attr-defined]
    monkeypatch.delenv("PYSPARK_PYTHON")
    assert configure(Builder(**{setting: "mine"}), bank="/log")._options[setting] == "mine"  # type: ignore[arg-type,attr-defined]
    remote = configure(Builder(**{"spark.remote": "sc://host"}), bank="/log")  # type: ignore[arg-type]
    assert set(remote._options) == {  # type: ignore[attr-defined]
        "spark.remote", "spark.sql.catalog.bank", "spark.sql.catalog.bank.path"
    }  # fmt: skip
    assert configure(Builder(), bank="/log")._options[setting] == sys.executable  # type: ignore[arg-type,attr-defined]


def test_catalog_without_a_log_is_refused() -> None:
    """Give neither path nor endpoint, and both, in any case."""
    with pytest.raises(InvalidArgumentError, match="catalog bank has neither a path nor an endpoint"):
        configure(Builder(), bank={"allowDrop": True})  # type: ignore[arg-type]
    with pytest.raises(InvalidArgumentError, match="catalog bank has both a path and an endpoint"):
        configure(Builder(), bank={"Path": "/log", "endpoint": "host:1"})  # type: ignore[arg-type]
    with pytest.raises(InvalidArgumentError, match="catalog bank is given None, which is no log"):
        configure(Builder(), bank=None)  # type: ignore[arg-type]
    with pytest.raises(InvalidArgumentError, match=r"'a\.b' can't name a catalog"):
        configure(Builder(), **{"a.b": "/log"})  # type: ignore[arg-type]


def test_running_session_without_the_jar_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Configure while a session runs: one that has the jar is fine, any other is refused."""

    class Running:
        conf: ClassVar = {"spark.jars": f"x.jar,{jar()}"}

    monkeypatch.setattr(SparkSession, "getActiveSession", Running)
    configure(Builder(), bank="/log")  # type: ignore[arg-type]
    Running.conf = {}
    with pytest.raises(InvalidArgumentError, match="started without the catalog's jar"):
        configure(Builder(), bank="/log")  # type: ignore[arg-type]
