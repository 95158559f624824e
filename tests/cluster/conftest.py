"""One cluster for all scenarios."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.cluster.hosts import reason_without
from tests.cluster.site import SERVICES, Cluster, postgres_programs


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A cluster that was set up as docs/cluster.md says, with the topics in it."""
    without = reason_without() or (None if postgres_programs() else "PostgreSQL is not here")
    if without is not None:
        pytest.skip(without)
    with Cluster(tmp_path_factory.mktemp("cluster")) as cluster:
        cluster.start_spark()  # takes its time, meanwhile the rest is made
        cluster.start_store()
        cluster.make_secrets()
        cluster.make_database()
        cluster.make_bucket()
        cluster.submit()
        for name in SERVICES:
            cluster.start_service(name)
        for name in SERVICES:
            cluster.wait_for_service(name)
        cluster.start_clients()
        yield cluster
