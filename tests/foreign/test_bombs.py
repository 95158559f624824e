"""Compressed bytes of others' logs that would take all memory, and Avro's items of no bytes, are refused."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from tests.foreign.kafka.batch_writer import varint
from tests.selection import for_each
from txn_source.foreign.kafka.compression import NAMES, CompressionError, decompress
from txn_source.foreign.pulsar import compression
from txn_source.foreign.pulsar.avro_types import AvroType
from txn_source.foreign.pulsar.avro_values import decode_avro
from txn_source.foreign.pulsar.compression import CodecError, decompressed

MIB = 1 << 20


def zeros(codec: str, mib: int) -> memoryview:
    """Return so many zeros, compressed."""
    packed = pa.BufferOutputStream()
    with pa.CompressedOutputStream(packed, codec) as stream:
        for _ in range(mib):
            stream.write(bytes(MIB))
    return memoryview(packed.getvalue())


def test_kafka_batch_of_any_size_is_refused() -> None:
    """Compress zeros with zstd, which makes next to nothing of them: 60 MiB are read, more are refused."""
    codec = NAMES.index("zstd")
    assert len(decompress(codec, zeros("zstd", 60))) == 60 * MIB
    assert len(zeros("zstd", 200)) < 50_000
    before = pa.total_allocated_bytes()
    with pytest.raises(CompressionError, match="too large"):
        decompress(codec, zeros("zstd", 200))
    assert pa.total_allocated_bytes() - before < MIB


@for_each("codec", [compression.LZ4, compression.ZLIB, compression.ZSTD, compression.SNAPPY])
def test_pulsar_payload_that_says_an_impossible_size_is_refused(codec: int) -> None:
    with pytest.raises(CodecError, match="it says that its 10 bytes have 2000000000, uncompressed"):
        decompressed(codec, memoryview(bytes(10)), 2_000_000_000)


@pytest.mark.parametrize(("inner", "is_bad"), [(0, False), (1, False), (5_000, True)])
def test_avro_items_of_no_bytes_are_no_more_than_the_value_has_bytes(inner: int, is_bad: bool) -> None:
    """Put arrays of nulls into an array: each by itself could be, together they would be ten million."""
    null = AvroType("null", pa.null())
    nulls = AvroType("array", pa.list_(pa.null()), items=null)
    arrays = AvroType("array", pa.list_(nulls.arrow), items=nulls)
    item = (varint(inner) if inner else b"") + varint(0)
    value = np.frombuffer(varint(2_000) + item * 2_000 + varint(0), np.uint8)
    array, bad = decode_avro(arrays, value, np.array([0]), np.array([len(value)]))
    assert bool(bad[0]) == is_bad
    assert is_bad or len(array[0]) == 2_000
