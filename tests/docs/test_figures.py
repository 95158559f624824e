"""Figures in sentences are those of the code: each is written here as its page has it, with the code's value in it."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from pathlib import Path

import txn_source
from tests.selection import for_each
from txn_source.client.tiering import garbage
from txn_source.client.writing import batch_buffer
from txn_source.client.writing.batching import Batching
from txn_source.console import browsing, query, values
from txn_source.console.api import messages, partitions
from txn_source.foreign.kafka import decided
from txn_source.foreign.pulsar import raw_entries, summary_cache, trace
from txn_source.http import log_metrics
from txn_source.metadata.store import consumers, topic_changes
from txn_source.model.policies import POLICIES
from txn_source.model.transaction import MAX_TIMEOUT_MS
from txn_source.observing import spans
from txn_source.spark import progress
from txn_source.storage import schema

ROOT = Path(__file__).resolve().parents[2]
MIB = 1 << 20
TIMEOUT_S = inspect.signature(txn_source.Log.begin_transaction).parameters["timeout"].default
_BATCHING = Batching()
_LIFE = f"{TIMEOUT_S:.0f} s by default, {MAX_TIMEOUT_MS // 60_000} minutes at most"
_GATHERED = (
    f"for {_BATCHING.linger_s * 1000:.0f} ms, up to {_BATCHING.max_messages:,} messages or"
    f" {_BATCHING.max_bytes // MIB} MiB (`Batching`)"
)
_LEASE = f"{consumers.LEASE_MS // 1000} s"
_ENTRY = f"{batch_buffer.ENTRY_MAX_ROWS:,} rows or {batch_buffer.ENTRY_MAX_BYTES // MIB} MiB"
_FIRST = f"timeout={MAX_TIMEOUT_MS // 1000})  # seconds, {TIMEOUT_S:.0f} by default"
SENTENCES = [
    ("README.md", _FIRST),
    ("README.md", "after a day" if garbage.DEFAULT_AGE_S == 86_400 else "?"),
    ("docs/quickstart.md", _FIRST),
    ("docs/writing.md", _LIFE),
    ("docs/writing.md", _GATHERED),
    ("docs/writing.md", f"an entry ({_ENTRY})"),
    ("docs/writing.md", f"a message of more than {schema.MESSAGE_MAX_BYTES // MIB} MiB"),
    ("docs/questions.md", f"A message has up to {schema.MESSAGE_MAX_BYTES // MIB} MiB"),
    ("docs/questions.md", f"entries of up to {_ENTRY}"),
    ("docs/questions.md", f"lasts {MAX_TIMEOUT_MS // 60_000} minutes at most"),
    ("docs/questions.md", f"up to {topic_changes.MAX_PARTITIONS:,} partitions"),
    ("docs/questions.md", f"({TIMEOUT_S:.0f} s unless it says otherwise, {MAX_TIMEOUT_MS // 60_000} minutes at most)"),
    ("docs/subscriptions.md", f"and else within {_LEASE}."),
    ("docs/glossary.md", f"which ends {_LEASE} after"),
    ("docs/kafka.md", f"up to {decided._CHEAP_SEGMENTS} segments and {decided._CHEAP // MIB} MiB of them"),
    ("docs/kafka.md", f"({decided._CHEAP_REMOTE // MIB} MiB on object stores)"),
    ("docs/pulsar.md", f"the last {trace.PASSED} ledgers"),
    ("docs/pulsar.md", f"each {raw_entries.PIECE_BYTES // MIB} MiB of its data"),
    ("docs/pulsar.md", f"up to {summary_cache.SUMMARIES.limit // MIB} MiB"),
    ("docs/metrics.md", f"are found every {log_metrics.REFRESH_S:.0f} seconds"),
    ("docs/metrics.md", f"a line every {progress._EVERY_S:.0f} seconds at most for each query"),
    ("docs/metrics.md", f"with up to {spans._MAX_LINKS} of them"),
    ("docs/console.md", f"at most {query.MAX_LIMIT} rows; a strip at most {partitions._ALONE} pieces"),
    ("docs/console.md", f"up to {values.SHORT:,} characters"),
    ("docs/console.md", f"up to {values.WHOLE // MIB} MiB of each value"),
    ("docs/console.md", f"at most {browsing.READ_BYTES // MIB} MiB or {browsing.READ_MESSAGES:,} messages"),
    ("docs/console.md", f"at most {messages._TOGETHER} partitions"),
]
"""A page, and words of it with figures that the code has."""


@for_each(("page", "words"), SENTENCES)
def test_pages_have_the_figures_of_the_code(page: str, words: str) -> None:
    """A figure that is changed in the code alone, or on the page alone, is found here."""
    assert words in (ROOT / page).read_text(encoding="utf-8")


def defaults() -> Iterator[tuple[str, str]]:
    """Yield the policies of the page about tiers, each with its setting and what it is if it is unset."""
    page = (ROOT / "docs" / "tiers.md").read_text(encoding="utf-8")
    for line in page.splitlines():
        if found := re.match(r"\| `(\w+)`.*?\| `(\w+)` \| (.*) \|$", line):
            yield found[1], f"{found[2]}: {found[3].strip('`')}"


def test_the_table_of_policies_is_the_codes() -> None:
    """Each has the name that its setting has, and its default; one without is unset in words."""
    listed = dict(defaults())
    assert list(listed) == list(POLICIES)
    for name, policy in POLICIES.items():
        setting, _, unset = listed[name].partition(": ")
        assert setting == policy.setting, name
        assert policy.default is None or unset == str(getattr(policy.default, "value", policy.default)), name
