"""The database transaction that the store's functions work in.

Services pass it on from ``Database.read`` and ``Database.write`` to the functions of this folder, and do nothing else
with it.
"""

from __future__ import annotations

from sqlalchemy import Connection

__all__ = ["Connection"]
