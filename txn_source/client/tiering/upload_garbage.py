"""Uploads of offloaded ledgers that were killed: S3 keeps their parts, at a price, until somebody lets go of them.

An offload writes its object in parts, and completes it at its end. An upload that was begun long ago is nobody's any
more; were it somebody's, its offload would be refused, and tried again.
"""

from __future__ import annotations

import logging

from txn_source.client.access import Access
from txn_source.model.errors import TopicNotFoundError
from txn_source.storage.object_names import may_be_object, may_be_second_file
from txn_source.storage.object_root import ObjectRoot
from txn_source.storage.object_store import reason
from txn_source.storage.object_uri import object_uri, parts_of

_log = logging.getLogger(__name__)


def abort_uploads(access: Access, oldest_s: float, *, dry_run: bool) -> list[str]:
    """Let go of uploads begun before a time (seconds since the epoch, by the store's clock); return their URIs.

    A store that can't be asked keeps what it has, and a warning tells so.
    """
    found = []
    for folder in sorted(_folders(access)):
        try:
            found += _abort(folder, oldest_s, dry_run=dry_run)
        except OSError as error:
            shown = folder.partition("?")[0]
            _log.warning("unfinished uploads below %s can't be looked for: %s", shown, reason(error))
    return found


def _abort(folder: str, oldest_s: float, *, dry_run: bool) -> list[str]:
    from txn_source.storage.object_requests import S3Requests, requests_for

    requests = requests_for(folder)
    if not isinstance(requests, S3Requests):
        return []
    found = []
    for path, upload_id, begun_s in requests.uploads():
        if begun_s <= oldest_s and (may_be_object(path) or may_be_second_file(path)):
            if not dry_run:
                requests.abort_upload(path, upload_id)
            found.append(object_uri(folder, path).partition("?")[0])
    return found


def _folders(access: Access) -> set[str]:
    """Return where ledgers are offloaded to, as far as that is on S3."""
    folders = {object_uri(access.root.uri, "tiered")} if isinstance(access.root, ObjectRoot) else set()
    for topic in access.metadata.list_topics():
        try:
            folder = access.metadata.policies_in_force(topic)["offload_uri"].value
        except TopicNotFoundError:
            continue  # deleted since it was listed
        if folder is not None:
            folders.add(str(folder))
    return {folder for folder in folders if parts_of(folder)[0] == "s3"}
