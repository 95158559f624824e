"""A small local Spark for the examples, whose own log stays off the terminal."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import BinaryIO

from pyspark.sql import SparkSession

from txn_source.spark import configure

CHECKPOINTS = "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
"""How Spark keeps checkpoints here: its usual way starts ten processes for each file on a local disk."""


@contextmanager
def quiet_spark(name: str) -> Iterator[SparkSession]:
    """Give a session on two cores; it is stopped when the block ends, however it ends.

    It is started in a thread of its own, and is best used in others, too: Ctrl-C strikes in the main thread, where it
    would tear the connection to Java, or leave a Java behind that is just being started.
    """
    _check_java()
    builder = (
        configure(SparkSession.builder.master("local[2]"))
        .appName(name)
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.shuffle.partitions", 2)
        .config("spark.ui.enabled", False)
        .config("spark.ui.showConsoleProgress", False)
        .config("spark.sql.streaming.checkpointFileManagerClass", CHECKPOINTS)
    )
    with tempfile.TemporaryFile() as log:
        try:
            with _stderr_to(log), ThreadPoolExecutor(1) as thread:
                spark = thread.submit(builder.getOrCreate).result()
        except Exception:
            log.seek(0)
            sys.stderr.write(log.read().decode(errors="replace"))
            raise
        try:
            spark.createDataFrame([], "n int")  # makes it the active session here, without which no sink is found
            yield spark
        finally:
            spark.stop()


@contextmanager
def _stderr_to(log: BinaryIO) -> Iterator[None]:
    """Give child processes started in the block (Java, and what it starts later) another stderr than ours."""
    sys.stderr.flush()
    ours = os.dup(2)
    os.dup2(log.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(ours, 2)
        os.close(ours)


def _check_java() -> None:
    home = os.environ.get("JAVA_HOME")
    java = shutil.which(os.path.join(home, "bin", "java") if home else "java")
    if java is None:
        sys.exit("Spark needs Java 17 or newer, and there is none. Install it, or point JAVA_HOME to it.")
    said = subprocess.run([java, "-version"], capture_output=True, text=True, check=False).stderr
    version = re.search(r'version "(\d+)', said)
    if version is None or int(version[1]) < 17:
        sys.exit(f"Spark needs Java 17 or newer, and {java} says: {said.strip()}\nPoint JAVA_HOME to a newer one.")
