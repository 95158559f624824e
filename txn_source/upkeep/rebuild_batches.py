"""What streaming queries, numbered jobs and imports have done, as far as their batches are noted: rows of the database.

A batch is noted as a whole once it was registered. So what is told last was done, and what was done later is not there.
"""

from __future__ import annotations

from collections.abc import Sequence

from txn_source.metadata.store.connection import Connection
from txn_source.metadata.store.rebuilt_rows import add_rows
from txn_source.upkeep.rebuild_sources import FoundTopic

_RUNS_KEPT = 16
_QUERY, _APPLICATION, _IMPORT = "q", "a", "i"


def add_batches(connection: Connection, found: Sequence[FoundTopic]) -> None:
    """Insert the last batch of each query, the last version of each application by topic, and how far imports came."""
    queries: dict[str, list[tuple[int, int, int, str]]] = {}
    producers: dict[tuple[str, int], tuple[int, int, int, int]] = {}
    versions: dict[tuple[int, str], tuple[int, int, int]] = {}
    for topic in found:
        topic_id = topic.described.topic_id
        for producer_id, told in topic.segments.told:
            if _QUERY in told:
                query_id, batch_id, messages, content, run, following = told[_QUERY]
                queries.setdefault(query_id, []).append((batch_id, messages, content, run))
                of = batch_id, producer_id, topic.segments.producers[producer_id].epoch, following
                producers[query_id, topic_id] = max(of, producers.get((query_id, topic_id), of))
            if _APPLICATION in told:
                app_id, *version = told[_APPLICATION]
                now = (version[0], version[1], version[2])
                versions[topic_id, app_id] = max(now, versions.get((topic_id, app_id), now))
    sinks = []
    for query_id, batches in sorted(queries.items()):
        ordered = sorted(set(batches))
        runs = [run for run in dict.fromkeys(run for _, _, _, run in ordered) if run][-_RUNS_KEPT:]
        sinks.append((query_id, *ordered[-1][:3], " ".join(runs)))
    add_rows(connection, "sinks", ("query_id", "batch_id", "messages", "content", "runs"), sinks)
    add_rows(
        connection, "sink_producers", ("query_id", "topic_id", "producer_id", "epoch", "next_sequence"),
        [(*key, *of[1:]) for key, of in sorted(producers.items())],
    )  # fmt: skip
    add_rows(
        connection, "app_versions", ("topic_id", "app_id", "version", "messages", "content"),
        [(*key, *of) for key, of in sorted(versions.items())],
    )  # fmt: skip
    imports = [(f"topic:{topic.described.topic_id}", "import", text) for topic in found if (text := _progress(topic))]
    add_rows(connection, "policies", ("scope", "name", "value"), imports)


def _progress(topic: FoundTopic) -> str | None:
    """Return how far an import of a topic had come; None: there was none, or that isn't sure.

    The description tells it if nothing was written after it, and nothing is left out.
    """
    told = [(producer_id, *told[_IMPORT]) for producer_id, told in topic.segments.told if _IMPORT in told]
    if told:
        return str(max(told)[2])
    partitions = topic.described.partitions
    later = any(
        len(placed.rows["position"]) and placed.rows["position"][-1] >= int(partitions.get(id_, {}).get("log_end", 0))
        for id_, placed in topic.placed.items()
    )
    return None if later or topic.jobs else topic.described.text.get("import")
