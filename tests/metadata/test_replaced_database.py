"""A log that is moved, removed or put back under a process that has it open: it writes to none that it doesn't mean."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import txn_source
from tests.log.reading import BY_HAND
from txn_source.metadata.store.log import create_log
from txn_source.metadata.store.log_identity import read_info
from txn_source.metadata.store.opening import open_database
from txn_source.model.errors import UnavailableError

pytestmark = pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")


def nothing() -> None:
    """Keep the connections open."""


def fork() -> None:
    """Have all connections closed, as each fork does."""
    pid = os.fork()
    if not pid:
        os._exit(0)
    os.waitpid(pid, 0)


@pytest.mark.parametrize("meanwhile", [nothing, fork])
def test_log_that_was_put_back_takes_nothing_of_those_who_had_the_old_one_open(
    tmp_path: Path, meanwhile: Callable[[], None]
) -> None:
    root = tmp_path / "log"
    log = txn_source.connect(root)
    log.create_topic("t", partitions=1)
    producer = log.producer("t", batching=BY_HAND)
    producer.send(b"before")
    producer.flush()
    txn_source.backup(root, tmp_path / "backup")
    root.rename(tmp_path / "old")
    txn_source.restore(tmp_path / "backup", root)
    meanwhile()
    producer.send(b"after")
    with pytest.raises(UnavailableError, match="isn't the one that was opened"):
        producer.flush()
    with pytest.raises(UnavailableError, match="Connect anew"):
        log.stats("t")
    root.rename(tmp_path / "restored")
    (tmp_path / "old").rename(root)  # what was sent goes where it was meant to
    log.close()
    for path, expected in ((root, [b"before", b"after"]), (tmp_path / "restored", [b"before"])):
        with txn_source.connect(path) as other:
            assert other.scan("t", columns=["value"]).read_all()["value"].to_pylist() == expected


def test_log_that_was_removed_acknowledges_nothing(tmp_path: Path) -> None:
    root = tmp_path / "log"
    log = txn_source.connect(root)
    log.create_topic("t", partitions=1)
    shutil.rmtree(root)
    with pytest.raises(UnavailableError, match="moved, removed or put back"):
        log.create_topic("u", partitions=1)
    log.close()


def test_file_with_the_number_of_the_old_one_is_known_by_its_log(tmp_path: Path) -> None:
    """A new file may get the number of one that is gone: here it is written over."""
    mine, other = (open_database(f"sqlite:///{tmp_path / name}.db") for name in ("mine", "other"))
    for database in (mine, other):
        create_log(database)
        with database.read() as connection:
            read_info(connection)
        database.close()
    shutil.copyfile(tmp_path / "other.db", tmp_path / "mine.db")
    with pytest.raises(UnavailableError, match="isn't the one that was opened"), mine.read() as connection:
        read_info(connection)
