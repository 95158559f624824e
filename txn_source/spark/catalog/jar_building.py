"""Makes the catalog's jar of its Java sources, with the JDK's compiler and the jars of a Spark.

It imports nothing but Python's own modules, since the build of the package runs it, too.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

VERSION_ENTRY = "io/txnlog/spark/spark-version"
"""The file in the jar that says with which Spark it was compiled."""
_SERVICE_ENTRY = "META-INF/services/org.apache.spark.sql.sources.DataSourceRegister"
"""The file in the jar that names the class of the format."""
_JAVA = 17
_EPOCH = (1980, 1, 1, 0, 0, 0)
_INSTALL = (
    f"Install a JDK {_JAVA} or newer (Debian, Ubuntu: apt-get install openjdk-17-jdk-headless; macOS: brew install"
    " openjdk@17) and point JAVA_HOME to it"
)


class NotBuiltError(Exception):
    """The jar can't be built here."""

    def __init__(self, fact: str, remedy: str) -> None:
        super().__init__(f"{fact} {remedy}")
        self.fact = fact
        self.remedy = remedy


def spark_jars(packages: Path | None = None) -> Path:
    """Return the folder of the jars of the Spark that PySpark starts here.

    Args:
        packages: where to look for the package ``pyspark``; None: where Python does.
    """
    home = os.environ.get("SPARK_HOME")
    if home is not None and packages is None:
        candidates = [Path(home) / "jars"]
    elif packages is not None:
        candidates = [packages / "pyspark" / "jars"]
    else:
        found = importlib.util.find_spec("pyspark")
        candidates = [Path(folder) / "jars" for folder in (found.submodule_search_locations or [])] if found else []
    for folder in candidates:
        if any(folder.glob("spark-sql_*.jar")):
            return folder
    where = ", ".join(map(str, candidates)) or "the place of pyspark, which isn't installed"
    raise NotBuiltError(
        f"Spark's jars are not in {where}.",
        "Install pyspark, or point SPARK_HOME to a Spark. A client of Spark Connect needs no jar: its server does.",
    )


def spark_version(jars: Path) -> str:
    """Return the version of the Spark that a folder of jars belongs to, such as 4.3.0."""
    for path in sorted(jars.glob("spark-sql_*.jar")):
        found = re.fullmatch(r"spark-sql_[\d.]+-(\d.*)\.jar", path.name)
        if found:
            return found[1]
    raise NotBuiltError(f"No jar in {jars} tells the version of Spark.", "Point SPARK_HOME to a Spark 4.2 or newer.")


def build(sources: Path, jars: Path, jar: Path) -> None:
    """Compile all Java files below a folder and write the jar, whole or not at all.

    The same sources and Spark give the same jar, byte by byte if the compiler is the same.

    Raises:
        NotBuiltError: there is no compiler, or it refuses.
    """
    compiler = _compiler()
    files = sorted(sources.rglob("*.java"))
    with tempfile.TemporaryDirectory(dir=jar.parent, prefix="building-") as folder:
        classes = Path(folder, "classes")
        command = [compiler, "--release", str(_JAVA), "-encoding", "UTF-8", "-nowarn", "-proc:none", "-d", str(classes)]
        run = subprocess.run(
            [*command, "-cp", f"{jars}{os.sep}*", *map(str, files)],
            capture_output=True,
            text=True,
            errors="replace",
            stdin=subprocess.DEVNULL,
        )
        if run.returncode != 0:
            said = (
                [line for line in run.stderr.splitlines() if "error" in line] or run.stderr.splitlines() or ["nothing"]
            )
            raise NotBuiltError(
                f"{compiler} can't compile the catalog for Spark {spark_version(jars)}; it says: {said[0].strip()}.",
                f"{_INSTALL}, and use one of the Spark versions that the README names.",
            )
        made = Path(folder, jar.name)
        with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as archive:
            _add(archive, "META-INF/MANIFEST.MF", b"Manifest-Version: 1.0\r\n\r\n")
            _add(archive, VERSION_ENTRY, spark_version(jars).encode())
            _add(archive, _SERVICE_ENTRY, b"io.txnlog.spark.TxnLogSource\n")
            for path in sorted(classes.rglob("*.class")):
                _add(archive, path.relative_to(classes).as_posix(), path.read_bytes())
        os.replace(made, jar)


def _add(archive: zipfile.ZipFile, name: str, content: bytes) -> None:
    archive.writestr(zipfile.ZipInfo(name, _EPOCH), content, zipfile.ZIP_DEFLATED)


def _compiler() -> str:
    """Return the compiler of the Java that Spark takes: of JAVA_HOME if that is set, else the one on PATH."""
    home = os.environ.get("JAVA_HOME")
    name = "javac.exe" if sys.platform == "win32" else "javac"
    found = shutil.which(str(Path(home, "bin", name))) if home else shutil.which(name)
    if found is None:
        where = f"{home}/bin, where JAVA_HOME points" if home else "PATH"
        raise NotBuiltError(f"The catalog's jar must be built, and there is no javac in {where}.", f"{_INSTALL}.")
    return found
