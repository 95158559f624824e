"""The service's table of calls has each call of the protocol, and nothing else."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.log.sites import service_over
from txn_source import connect
from txn_source._generated.txnlog.v1 import metadata_service_pb2 as pb
from txn_source.metadata.service.service import CALLS, CONVERSATIONS, MetadataService

METHODS = pb.DESCRIPTOR.services_by_name["MetadataService"].methods


@pytest.fixture
def service(tmp_path: Path) -> Iterator[MetadataService]:
    connect(tmp_path / "log").close()
    service = service_over(tmp_path / "log")
    yield service
    service.close()


def test_table_of_calls_is_the_protocol_s(service: MetadataService) -> None:
    """Compare the names with the descriptors', and each with the method that it leads to."""
    tables = {False: CALLS, True: CONVERSATIONS}
    for streaming, table in tables.items():
        assert set(table) == {method.name for method in METHODS if method.client_streaming == streaming}
        leads_to = {name: getattr(service._subject(subject), name) for name, subject in table.items()}
        assert [name for name, method in leads_to.items() if method.__name__ != name] == []
