"""The commands of docs/cluster.md, by name."""

from __future__ import annotations

import re
from pathlib import Path

DOCUMENT = (Path(__file__).parents[2] / "docs" / "cluster.md").read_text(encoding="utf-8")
_BLOCK = r"<!-- not run: on hosts of their own, by tests/cluster, as (\w+) -->\n```\w+\n(.*?)```"
BLOCKS: dict[str, str] = dict(re.findall(_BLOCK, DOCUMENT, re.DOTALL))
PLACES = {
    "s3://lake/log": "s3://lake/log?endpoint_override=http://store:9000",
    "/etc/txnlog": "/tmp/txnlog",
}
"""What is elsewhere in a test."""


def block(name: str) -> str:
    """Return a block of commands, with the places of the test."""
    code = BLOCKS[name]
    for there, here in PLACES.items():
        code = code.replace(there, here)
    return code
