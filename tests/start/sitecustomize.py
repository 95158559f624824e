"""Loaded by every Python that tests start: takes PySpark from where it is installed, with its compiled code.

Spark's own processes would compile their part of it anew each time, from the archive that comes with it. What forks
Spark's workers loads first what most of them need: each would spend most of its time on that.
"""

import importlib
import sys

sys.path[:] = [path for path in sys.path if not path.endswith("pyspark.zip")]
if sys.orig_argv[1:3] == ["-m", "pyspark.daemon"]:
    for name in ("batch", "sink", "source", "stream"):
        importlib.import_module(f"txn_source.spark.{name}")
