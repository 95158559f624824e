"""Writers that are interrupted everywhere: a call that is repeated completes, and nothing is lost or doubled."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from types import ModuleType

import pytest

from tests.interrupts.injection import at_call, at_signal_point
from tests.interrupts.writing import interrupt_everywhere
from tests.log.sites import Site
from txn_source.client.writing import (
    batch_buffer,
    copied_segments,
    copy_keeper,
    gathered,
    group,
    group_store,
    linger,
    losses,
    object_files,
    producer,
    receipts,
    routed_batch,
    segment_files,
    transaction,
    uploads,
)
from txn_source.storage import segment

MODULES: tuple[ModuleType, ...] = (
    batch_buffer, gathered, group, group_store, linger, losses, object_files, producer, receipts, routed_batch,
    segment_files, transaction, uploads, segment,
)  # fmt: skip
OF_COPIES = (*MODULES, copied_segments, copy_keeper)
STRIDE, STRIDE_OVER_OBJECTS = 41, 307


def _again(number: int) -> int | None:
    """Interrupt every other repetition, too, somewhere near its beginning."""
    return number % 37 if number % 2 else None


def test_interrupted_calls_to_the_outside_lose_nothing(site: Site) -> None:
    """Raise before and after each call of the file system and of the service; no send that was interrupted counts."""
    ledger = interrupt_everywhere(site.connect(), at_call, 3, _again)
    assert ledger.places["taken by a send that was interrupted"] == 0
    assert {"send", "send_batch", "flush", "commit", "close"} <= ledger.places.keys()


def test_interrupts_between_any_two_instructions_lose_nothing(embedded_site: Site) -> None:
    """Raise wherever Python looks for signals in the modules that write, at every so many-th place."""
    interrupt_everywhere(embedded_site.connect(), partial(at_signal_point, where=MODULES), STRIDE, _again)


def test_interrupts_over_an_object_store_lose_nothing(tmp_path: Path) -> None:
    """Do the same where segments are objects, whose puts are under way in other threads."""
    with Site("objects", tmp_path / "log") as site:
        interrupt_everywhere(site.connect(), partial(at_signal_point, where=MODULES), STRIDE_OVER_OBJECTS, _again)


@pytest.mark.parametrize("is_away", [False, True])
def test_interrupts_with_copies_lose_nothing(tmp_path: Path, is_away: bool) -> None:
    """Do the same where there are two copies, and where one of three can't be written."""
    with Site("copies", tmp_path / "log") as site:
        log = site.connect()
        if is_away:
            log.add_root("c", tmp_path / "c")
            log.set_policies(hot_copies="main,b,c", acknowledge_copies=2)
            (tmp_path / "c").rename(tmp_path / "away")
        interrupt_everywhere(log, partial(at_signal_point, where=OF_COPIES), STRIDE_OVER_OBJECTS, _again)


@pytest.mark.long
@pytest.mark.timeout(3000)
def test_interrupts_of_every_call_for_long(site: Site) -> None:
    """Raise before and after every single call; print how often that was in which step."""
    ledger = interrupt_everywhere(site.connect(), at_call, 1, _again)
    print(site.kind, "calls", dict(ledger.places))


@pytest.mark.long
@pytest.mark.timeout(3000)
def test_interrupts_between_any_two_instructions_for_long(site: Site) -> None:
    """Raise at every single place; print how often that was in which step."""
    ledger = interrupt_everywhere(site.connect(), partial(at_signal_point, where=MODULES), 1, _again)
    print(site.kind, "points", dict(ledger.places))
