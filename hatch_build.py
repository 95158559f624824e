"""Puts the catalog's Java sources and, where there are Spark's jars and a compiler, its jar into a wheel.

PySpark is too large to be fetched for a build. Its jars are taken from SPARK_HOME or from the environment that the
build was started in (``make wheel``). Without them, or without a JDK, the wheel has the sources only, and the jar is
built at its first use; TXNLOG_JAR=required lets such a build fail.
"""

from __future__ import annotations

import importlib.util
import os
import sysconfig
import tempfile
from pathlib import Path
from types import ModuleType
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class CatalogJar(BuildHookInterface):  # type: ignore[type-arg]
    """The build hook of the wheel."""

    _folder: tempfile.TemporaryDirectory[str] | None = None

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile the jar; an editable installation builds its own at the first use."""
        if version == "editable":
            return
        sources = Path(self.root, "java")
        build_data["force_include"][str(sources)] = "txn_source/spark/java"
        building = _building(Path(self.root))
        self._folder = tempfile.TemporaryDirectory()
        try:
            # An isolated build doesn't see the packages of the environment, but has its interpreter.
            home = "SPARK_HOME" in os.environ
            jars = building.spark_jars(None if home else Path(sysconfig.get_path("purelib")))
            jar = Path(self._folder.name, f"txnlog-spark-{building.spark_version(jars)}.jar")
            building.build(sources, jars, jar)
            build_data["force_include"][str(jar)] = f"txn_source/spark/jars/{jar.name}"
        except building.NotBuiltError as error:
            if os.environ.get("TXNLOG_JAR") == "required":
                raise
            self.app.display_warning(f"The wheel has no jar for the catalog, which is built at its first use. {error}")

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Remove what the wheel has now."""
        if self._folder is not None:
            self._folder.cleanup()


def _building(root: Path) -> ModuleType:
    """Return the module that compiles, without the package, whose dependencies aren't there."""
    spec = importlib.util.spec_from_file_location(
        "jar_building", root / "txn_source" / "spark" / "catalog" / "jar_building.py"
    )
    if spec is None or spec.loader is None:
        raise ImportError("jar_building")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
