"""Nothing that one test learnt of a ledger is known in the next."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from txn_source.foreign.pulsar import summary_cache


@pytest.fixture(autouse=True)
def _nothing_known() -> Iterator[None]:
    summary_cache.forget()
    yield
    summary_cache.forget()
