"""The jar that Spark needs for the catalog: from the package, or built at its first use."""

from __future__ import annotations

import hashlib
import os
import stat
import tempfile
from pathlib import Path

from txn_source.model.errors import NoJarError
from txn_source.spark.catalog.jar_building import NotBuiltError, build, spark_jars, spark_version

_SPARK = Path(__file__).parent.parent
_SHIPPED = _SPARK / "jars"
_SOURCES = (_SPARK / "java", _SPARK.parent.parent / "java")
"""In an installed package, and in a checkout."""


def jar() -> Path:
    """Return the jar for the Spark that PySpark starts here.

    A package that was built has one; it is taken for the minor version of Spark that it was compiled with. Everywhere
    else it is compiled, once for each version of the sources and of Spark, which takes three seconds.

    Raises:
        NoJarError: it must be compiled and can't be.
    """
    try:
        jars = spark_jars()
        version = spark_version(jars)
        for shipped in sorted(_SHIPPED.glob("txnlog-spark-*.jar")):
            if fits(shipped.stem.removeprefix("txnlog-spark-"), version):
                return shipped
        sources = next((folder for folder in _SOURCES if folder.is_dir()), None)
        if sources is None:
            raise NotBuiltError(
                f"The package has neither a jar for Spark {version} nor the Java sources.", "Install txn-source again."
            )
        made = _cache() / f"txnlog-spark-{version}-{_content(sources, jars)}.jar"
        if not made.exists():
            build(sources, jars, made)
        return made
    except NotBuiltError as error:
        raise NoJarError(error.fact, error.remedy) from None


def fits(compiled: str, used: str) -> bool:
    """True if a jar that was compiled with one version of Spark can be used with another: up to the minor version."""
    return compiled.split(".")[:2] == used.split(".")[:2]


def _content(sources: Path, jars: Path) -> str:
    digest = hashlib.sha256(str(jars).encode())
    for path in sorted(sources.rglob("*.java")):
        digest.update(path.relative_to(sources).as_posix().encode() + b"\0")
        digest.update(path.read_bytes() + b"\0")
    return digest.hexdigest()[:16]


def _cache() -> Path:
    """Return a folder of this user's for what can be made again, at last one in the place for temporary files."""
    base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    for folder in (Path(base, "txnlog"), Path(tempfile.gettempdir(), f"txnlog-{os.getuid()}")):
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            found = folder.stat(follow_symlinks=False)
        except OSError:
            continue
        mine = stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and not found.st_mode & 0o022
        if mine and os.access(folder, os.W_OK):
            return folder
    raise NotBuiltError(f"The jar can't be kept in {base}/txnlog.", "Set XDG_CACHE_HOME to a folder that is writable.")
