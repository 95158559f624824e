"""All that a Spark session needs to know of logs, said at once."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping
from typing import Any, cast

from pyspark import SparkContext
from pyspark.sql import SparkSession
from pyspark.sql.utils import is_remote

from txn_source.model.errors import InvalidArgumentError
from txn_source.spark.catalog.jar import jar

_CATALOG = "io.txnlog.spark.TxnLogCatalog"
_ENDPOINT = re.compile(r"[^/:,]+:\d+(,[^/:,]+:\d+)*")
_PYTHON = "spark.pyspark.python"


def configure(
    builder: SparkSession.Builder, /, **catalogs: str | os.PathLike[str] | Mapping[str, object]
) -> SparkSession.Builder:
    """Give a session a catalog for each log: ``configure(SparkSession.builder, bank="/data/log").getOrCreate()``.

    It sets ``spark.sql.catalog.<name>`` and its options, adds the jar to ``spark.jars``, and lets Spark's Python
    processes run this interpreter, unless ``spark.pyspark.python`` or PYSPARK_PYTHON says otherwise. Over Spark Connect
    it sets the catalogs alone: the jar and the interpreter are the server's. So it does in a program that
    ``spark-submit`` has started, which takes them from its own ``--jars`` and PYSPARK_PYTHON.

    Args:
        builder: of a session that isn't there yet.
        catalogs: by name the path of an embedded log, the ``host:port`` of a service (several with commas between
            them), or options: ``path`` or ``endpoint``, ``allowDrop``, and those of reads and writes as defaults.

    Returns:
        The builder.

    Raises:
        InvalidArgumentError: neither path nor endpoint, or both; or a session, or the driver that ``spark-submit`` has
            started, runs without the jar.
        NoJarError: the jar must be built, and can't be.
    """
    given: dict[str, str] = getattr(builder, "_options", {})
    for name, log in catalogs.items():
        options = _options(name, log)
        builder = builder.config(f"spark.sql.catalog.{name}", _CATALOG)
        for option, value in options.items():
            builder = builder.config(f"spark.sql.catalog.{name}.{option}", value)
    if "spark.remote" in given or "SPARK_REMOTE" in os.environ or is_remote():
        return builder
    if "PYSPARK_GATEWAY_PORT" in os.environ:
        _check_submitted()
        return builder
    path = str(jar())
    _check_running(path)
    jars = [each for each in given.get("spark.jars", "").split(",") if each]
    builder = builder.config("spark.jars", ",".join([*jars, *([] if path in jars else [path])]))
    if _PYTHON not in given and "PYSPARK_PYTHON" not in os.environ:
        builder = builder.config(_PYTHON, sys.executable)
        os.environ["PYSPARK_PYTHON"] = sys.executable  # by which the processes go that a Python driver starts
    return builder


def _options(name: str, log: str | os.PathLike[str] | Mapping[str, object]) -> dict[str, str]:
    if isinstance(log, Mapping):
        options = {key: str(value).lower() if isinstance(value, bool) else str(value) for key, value in log.items()}
    elif isinstance(log, str | os.PathLike):
        text = os.fspath(log)
        options = {"endpoint" if _ENDPOINT.fullmatch(text) else "path": text}
    else:
        raise InvalidArgumentError(
            f"The catalog {name} is given {log!r:.50}, which is no log.", 'Give a path, "host:port", or options.'
        )
    if "." in name:
        raise InvalidArgumentError(
            f"{name!r} can't name a catalog: SQL takes what is behind a dot for a namespace.", "Leave the dot out."
        )
    for option in options:
        if option.lower() == "token":
            raise InvalidArgumentError(
                f"The catalog {name} is given a token, and options show in plans and logs.",
                "Put it in a file, and name that by tokenFile.",
            )
    named = {option.lower() for option in options} & {"path", "endpoint"}
    if len(named) != 1:
        raise InvalidArgumentError(
            f"The catalog {name} has {'both a path and an endpoint' if named else 'neither a path nor an endpoint'}.",
            'Give one of them, such as bank="/data/log" or bank={"endpoint": "host:port"}.',
        )
    return options


def _check_submitted() -> None:
    """Refuse in a program of ``spark-submit`` whose driver can't load the catalog: it takes no jars any more."""
    SparkContext._ensure_initialized()
    jvm = cast("Any", SparkContext._jvm)
    if not jvm.org.apache.spark.util.Utils.classIsLoadable(_CATALOG):
        raise InvalidArgumentError(
            "spark-submit has started this program without the catalog's jar.",
            f"Start it with --jars {jar()}, which is what `txnlog spark-jar` names.",
        )


def _check_running(path: str) -> None:
    """Refuse where a session runs without the jar: Spark takes ``spark.jars`` only when it starts."""
    running = SparkSession.getActiveSession()
    if running is not None and path not in (running.conf.get("spark.jars", "") or "").split(","):
        raise InvalidArgumentError(
            "A Spark session runs that was started without the catalog's jar.",
            "Stop it, and configure the builder before its first getOrCreate().",
        )
