"""Deleting files: those that the database has released, and no others. Nothing else removes a file of the log.

Whoever makes a file useless dooms it in the same database transaction; here it is deleted, in all roots, and then
forgotten. Each deletion is a line of the audit.
"""

from __future__ import annotations

import json
import logging
from datetime import UTC, datetime

import pyarrow as pa

from txn_source.client.access import Access
from txn_source.client.hot_roots import delete_everywhere, places_of
from txn_source.client.tiering.snapshot_making import make_snapshot
from txn_source.model.errors import TxnLogError
from txn_source.storage.object_names import aborted_uri, may_be_object
from txn_source.storage.object_store import ObjectStore, is_unreachable, reason
from txn_source.storage.object_uri import store_of
from txn_source.storage.segment import SegmentName, topic_of_prefix

_log = logging.getLogger(__name__)
_audit = logging.getLogger("txnlog.audit")


def delete_doomed_files(access: Access) -> int:
    """Delete the files that nothing refers to any more; return how many. One that can't be deleted is kept in mind."""
    store = ObjectStore(access.root)
    gone, count = [], 0
    unreachable: set[str] = set()
    doomed = access.metadata.list_doomed_files()
    service = access.metadata.service
    if service is not None and service.files_wait() and make_snapshot(access, 0.0, quick=True) is not None:
        doomed = access.metadata.list_doomed_files()
    for file in doomed:
        if store_of(file.uri) in unreachable:
            continue  # each of its files would take seconds to fail
        topic_id = topic_of_prefix(file.uri)
        try:
            if topic_id is not None:
                _delete_topic(access, topic_id)
            elif may_be_object(file.uri):
                delete_object(store, file.uri)
            elif SegmentName.parse(file.uri) is not None:
                _delete_segment(access, store, file.uri)
            else:
                _log.warning("%.200r is to be deleted and is no file of this log's: it is left alone", file.uri)
                continue  # whatever the service says, nothing else is touched
        except (OSError, TxnLogError, pa.ArrowException) as error:
            _log.warning("%s can't be deleted and is tried again later: %s", file.uri.partition("?")[0], reason(error))
            if is_unreachable(error):
                unreachable.add(store_of(file.uri))
            continue
        note_deleted(access, file.uri)
        gone.append(file.doomed_id)
        count += topic_id is None  # a topic's are deleted again for a while
    try:
        store.sync_deleted()
    except OSError as error:  # after a power cut one of them may be there again, and nobody else would know of it
        _log.warning("what was deleted isn't safe yet and is deleted again later: %s", reason(error))
        return 0
    access.metadata.forget_doomed_files(gone)
    return count


def delete_all_doomed(access: Access) -> int:
    """Delete all of them, a page at a time; return how many."""
    total = 0
    while count := delete_doomed_files(access):
        total += count
    return total


def delete_object(store: ObjectStore, uri: str) -> None:
    """Delete an object, and the second file that may lie beside it; raise OSError if one is there and stays."""
    store.delete(aborted_uri(uri))
    store.delete(uri)


def note_deleted(access: Access, uri: str, root: str | None = None) -> None:
    """Write a line of the audit about a file that was deleted; in one root, if that is named."""
    line = {
        "time": datetime.now(UTC).isoformat(timespec="milliseconds"),
        "who": "maintenance",
        "call": "delete",
        "what": {"log": access.metadata.log_id, "file": uri.partition("?")[0], **({"root": root} if root else {})},
        "outcome": "ok",
    }
    _audit.info("%s", json.dumps(line, ensure_ascii=True))


def _delete_segment(access: Access, store: ObjectStore, path: str) -> None:
    store.delete(path)
    failed = delete_everywhere(access, path) if access.metadata.roots else []
    if failed:
        raise failed[0]


def _delete_topic(access: Access, topic_id: int) -> None:
    for place in places_of(access):
        place.check()
        place.segments.delete_topic(topic_id)
