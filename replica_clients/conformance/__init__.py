"""The behaviour required of every object store and replica client, as tests for third parties to inherit.

With pytest installed (``pip install 'litelog[test]'``), a backend's test module is:

    import pytest
    from replica_clients.conformance import ObjectStoreConformance, ReplicaClientConformance

    class TestMyStore(ObjectStoreConformance):
        @pytest.fixture
        def store(self, tmp_path): return MyStore(tmp_path)  # empty, new for each test

    class TestMyClient(ReplicaClientConformance):
        @pytest.fixture
        def client(self, tmp_path): return ObjectReplicaClient(MyStore(tmp_path))

This module imports neither pytest nor any other package that litelog itself does not need. For messages that show
values, call ``pytest.register_assert_rewrite("replica_clients.conformance")`` before the import. For a store that is
slow or costs money, lower ``many`` and ``large_bytes``.
"""

from replica_clients.conformance.object_store import ObjectStoreConformance
from replica_clients.conformance.replica_client import ReplicaClientConformance

__all__ = ["ObjectStoreConformance", "ReplicaClientConformance"]
