"""What a story needs that another folder has: ``txnlog`` as a process."""

from __future__ import annotations

from tests.cli.conftest import spawn

__all__ = ["spawn"]
