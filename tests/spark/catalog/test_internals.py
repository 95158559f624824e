"""What the catalog's Java uses of Spark: public interfaces, and in one file the rest."""

from __future__ import annotations

import re
from pathlib import Path

from tests.selection import for_each

JAVA = Path(__file__).parents[3] / "java" / "io" / "txnlog" / "spark"
PUBLIC = re.compile(
    r"org\.apache\.spark\.(SparkThrowable|sql\.SparkSession|sql\.sources\.DataSourceRegister|sql\.connector\..*|sql\.types\..*|sql\.vectorized\..*"
    r"|unsafe\.types\.UTF8String|sql\.util\.CaseInsensitiveStringMap"
    r"|sql\.catalyst\.InternalRow|sql\.catalyst\.analysis\.\w+Exception)"  # in signatures of public interfaces
)


@for_each("path", sorted(JAVA.glob("*.java")))
def test_internals_of_spark_are_in_one_file(path: Path) -> None:
    used = re.findall(r"^import (?:static )?((?:org\.apache\.spark|scala)\.[\w.$]+);", path.read_text(), re.MULTILINE)
    internal = [name for name in used if not PUBLIC.fullmatch(name)]
    assert bool(internal) == (path.stem == "SparkInternals"), internal
