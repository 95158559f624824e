"""Loaded by every Python that tests start: takes PySpark from where it is installed, with its compiled code.

Spark's own processes would compile their part of it anew each time, from the archive that comes with it.
"""

import sys

sys.path[:] = [path for path in sys.path if not path.endswith("pyspark.zip")]
