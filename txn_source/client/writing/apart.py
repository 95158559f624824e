"""Putting notes that no file takes: what is noted lies apart, in the log's own root (``storage/apart_notes.py``).

Nothing depends on that while there is a database, so what fails is left.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import TypeAlias

from txn_source.client.access import Access
from txn_source.model.errors import TxnLogError
from txn_source.storage.apart_notes import put_apart
from txn_source.storage.root_files import StoreRestsError

_log = logging.getLogger(__name__)
Apart: TypeAlias = Callable[[Sequence[str], bytes], None]
"""Puts a note that tells of some segments."""


def apart_in(access: Access) -> Apart:
    """Return what puts notes into a log's own root."""
    root, log_id = access.root, access.metadata.log_id

    def put(paths: Sequence[str], note: bytes) -> None:
        try:
            put_apart(root, log_id, paths, note)
        except StoreRestsError:
            return
        except (OSError, TxnLogError) as error:
            _log.warning("what became of entries was not noted, for a rebuild: %s", error)

    return put
