"""Lays segments out as Aiven's plugin for tiered storage does."""

from __future__ import annotations

import base64
import json
import struct
from pathlib import Path
from typing import Any

import pyarrow as pa

NAMES = {
    "index": "offset",
    "timeindex": "timestamp",
    "snapshot": "producerSnapshot",
    "leader_epoch_checkpoint": "leaderEpoch",
    "txnindex": "transaction",
}


def encode_sizes(sizes: list[int]) -> bytes:
    """Return sizes of chunks in the manifest's binary form."""
    if len(sizes) < 2:
        return struct.pack(f">{len(sizes) + 1}i", len(sizes), *sizes)
    smallest = min(sizes[:-1])
    width = max(1, *(((size - smallest).bit_length() + 7) // 8 for size in sizes[:-1]))
    middle = b"".join((size - smallest).to_bytes(width, "big") for size in sizes[:-1])
    return struct.pack(">iib", len(sizes), smallest, width) + middle + struct.pack(">i", sizes[-1])


def lay_out(files: dict[str, Path], to: Path, *, chunk: int, compress: bool, variable: bool) -> None:
    """Write a segment's log, indexes and manifest.

    Args:
        files: the plain files by kind, the log among them.
        to: the path of all three, without a suffix.
        chunk: bytes of the log in one chunk.
        compress: each chunk with zstd.
        variable: whether the manifest lists the sizes of all chunks; else they are equal, which compression rules out.
    """
    log = files["log"].read_bytes()
    chunks = [log[at : at + chunk] for at in range(0, len(log), chunk)]
    stored = [pa.compress(part, "zstd", True) for part in chunks] if compress else chunks
    sizes = [len(part) for part in stored]
    index: dict[str, Any] = {"originalChunkSize": chunk, "originalFileSize": len(log)}
    if variable:
        packed = pa.compress(encode_sizes(sizes), "zstd", True)
        index |= {"type": "variable", "transformedChunks": base64.b64encode(packed).decode()}
    else:
        index |= {"type": "fixed", "transformedChunkSize": chunk, "finalTransformedChunkSize": sizes[-1]}
    places: dict[str, Any] = dict.fromkeys(NAMES.values())
    indexes = b""
    for kind, name in NAMES.items():
        if kind in files:
            data = files[kind].read_bytes()
            places[name] = {"position": len(indexes), "size": len(data)}
            indexes += data
    manifest = {"version": "1", "chunkIndex": index, "segmentIndexes": places, "compression": compress}
    to.parent.mkdir(parents=True, exist_ok=True)
    to.with_suffix(".log").write_bytes(b"".join(stored))
    to.with_suffix(".indexes").write_bytes(indexes)
    to.with_suffix(".rsm-manifest").write_text(json.dumps(manifest))
