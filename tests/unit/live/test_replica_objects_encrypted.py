from __future__ import annotations

from litelog.live.replica_objects import ReplicaObjects
from litelog.stores.object_store import ObjectReplicaClient
from litelog.stores.opening import opened_replica
from tests.builders.encrypted import GenerationFolder, make_identity, write_identity

KEY = "snapshots/0000000000000000.snapshot.lz4"


def test_objects_stay_encrypted_even_if_the_daemon_has_an_identity(tmp_path) -> None:
    place = str(tmp_path / "replica")
    with opened_replica(place) as client:
        assert isinstance(client, ObjectReplicaClient)
        folder = GenerationFolder(client.store)
        folder.put(KEY, [b"content"])
        stored = client.store.open(folder.root + KEY).read()
    identity = write_identity(tmp_path / "identity", make_identity()[0])
    objects = ReplicaObjects(place, {"identity-file": identity})
    try:
        assert objects.open(folder.root + KEY, None).read() == stored
        assert [info.size for info in objects.list(folder.root, None, 10)] == [len(stored)]
    finally:
        objects.close()
