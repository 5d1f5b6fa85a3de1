from __future__ import annotations

from dataclasses import replace

import pytest

from litelog.errors import CorruptObjectError, DowngradeError, EncryptedError, StoreError, WrongIdentityError
from litelog.objects import claim as claims
from litelog.objects.layout import Fencing
from litelog.stores.encrypted_store import EncryptedStore, IdentityKeys
from litelog.stores.object_store import ObjectReplicaClient, PassesWaiting
from litelog.stores.opening import decrypting, opened_replica
from litelog.stores.retrying_store import RetryingStore
from replica_clients.memory import MemoryStore
from tests.builders.encrypted import GenerationFolder, encrypted_claim, make_identity, put_claim, write_identity
from tests.builders.stores import CountingStore


def store_for(identities, inner) -> EncryptedStore:
    return EncryptedStore(inner, IdentityKeys(identities))


def test_claims_and_objects_of_plain_generations_are_stored_as_they_are() -> None:
    inner = MemoryStore("mine")
    _, recipients, identities = make_identity()
    store = store_for(identities, inner)
    plain, secret = encrypted_claim(1, None), encrypted_claim(2, recipients)
    for claim in (plain, secret):
        put_claim(store, claim)
        store.put(f"generations/{claim.generation}/wal/x", [b"content"])
        assert claims.decode(claim.key, inner.open(claim.key).read()) == claim
        assert store.open(f"generations/{claim.generation}/wal/x").read() == b"content"
    assert inner.open(f"generations/{plain.generation}/wal/x").read() == b"content"
    assert b"content" not in inner.open(f"generations/{secret.generation}/wal/x").read()
    assert [info.size for info in store.list("generations/")] == [7, 7]


def test_a_claim_is_read_once_however_many_objects_there_are() -> None:
    counting = CountingStore(MemoryStore("mine"))
    folder = GenerationFolder(counting)
    for number in range(5):
        folder.put(f"wal/{number}", [b"x"])
    before = counting.requests.copy()
    assert [folder.open(f"wal/{number}").read() for number in range(5)] == [b"x"] * 5
    assert counting.requests["open"] - before["open"] == 5


def test_nothing_is_put_into_a_generation_without_a_claim() -> None:
    _, _, identities = make_identity()
    inner = MemoryStore("mine")
    with pytest.raises(StoreError, match="the claim of generation 0000000100c0ffee is not there"):
        store_for(identities, inner).put("generations/0000000100c0ffee/wal/x", [b"content"])
    assert list(inner.list("")) == []


def test_another_identity_is_refused_with_the_recipients() -> None:
    folder = GenerationFolder(MemoryStore("mine"))
    folder.put("wal/x", [b"content"])
    _, _, other = make_identity()
    assert folder.claim.encryption is not None
    with pytest.raises(WrongIdentityError, match=f"recipients are {folder.claim.encryption.recipients[0]}"):
        store_for(other, folder.inner).open(folder.root + "wal/x")


def test_without_an_identity_an_object_is_reported_as_encrypted(tmp_path) -> None:
    place = str(tmp_path / "replica")
    with opened_replica(place) as client:
        folder = GenerationFolder(client.store)
        folder.put("snapshots/0000000000000000.snapshot.lz4", [b"content"])
    with (
        pytest.raises(EncryptedError, match=r"replica: is encrypted; name the file of"),
        opened_replica(place) as client,
    ):
        client.read_snapshot(folder.claim.generation, 0)


def test_a_claim_that_somebody_without_the_key_changed_is_named() -> None:
    inner = MemoryStore("mine")
    _, recipients, identities = make_identity()
    claim = put_claim(inner, replace(encrypted_claim(1, recipients), host="elsewhere"))
    with pytest.raises(CorruptObjectError, match="its mac is wrong"):
        store_for(identities, inner).open(f"generations/{claim.generation}/wal/x")


def test_a_plain_generation_after_an_encrypted_one_is_refused() -> None:
    inner = MemoryStore("mine")
    _, recipients, identities = make_identity()
    for epoch, chosen in ((1, None), (2, recipients), (3, None), (4, None)):
        put_claim(inner, encrypted_claim(epoch, chosen))
    store = store_for(identities, inner)
    for epoch in (1, 3, 4):
        name = encrypted_claim(epoch, None).generation
        inner.put(f"generations/{name}/wal/x", [b"content"])
        if epoch == 1:
            assert store.open(f"generations/{name}/wal/x").read() == b"content"
            continue
        with pytest.raises(DowngradeError, match=r"epochs/00000002.json before it is"):
            store.open(f"generations/{name}/wal/x")
    plain = EncryptedStore(inner, IdentityKeys(identities), refuses_downgrade=False)
    assert plain.open(f"generations/{name}/wal/x").read() == b"content"


@pytest.mark.parametrize("fencing", Fencing)
def test_a_plain_generation_of_the_epoch_of_an_encrypted_one_is_refused(fencing: Fencing) -> None:
    """An attacker who adds one chooses its name, and readers take the claim whose name sorts last."""
    _, recipients, identities = make_identity()
    for number in (0, 0xFFFFFFFF):
        inner = MemoryStore("mine")
        put_claim(inner, encrypted_claim(1, recipients, fencing=fencing))
        added = put_claim(inner, encrypted_claim(1, None, number=number, fencing=Fencing.ISOLATED))
        inner.put(f"generations/{added.generation}/wal/x", [b"content"])
        with pytest.raises(DowngradeError, match="is not encrypted"):
            store_for(identities, inner).open(f"generations/{added.generation}/wal/x")


def test_a_copy_is_encrypted_also_if_somebody_put_a_plain_claim_there() -> None:
    source, target = MemoryStore("mine"), MemoryStore("copy")
    folder = GenerationFolder(source)
    put_claim(target, encrypted_claim(1, None))
    copy = folder.store.for_copy(target)
    copy.put(folder.root + "wal/x", [b"content"])
    assert b"content" not in target.open(folder.root + "wal/x").read()
    assert copy.open(folder.root + "wal/x").read() == b"content"


def test_only_with_an_identity_is_a_store_wrapped(tmp_path, monkeypatch) -> None:
    monkeypatch.delenv("LITELOG_IDENTITY", raising=False)
    store = MemoryStore("mine")
    assert decrypting(store, {}) is store
    path = write_identity(tmp_path / "key.txt", make_identity()[0])
    assert isinstance(decrypting(store, {"identity-file": path}), EncryptedStore)
    with opened_replica(str(tmp_path / "replica"), {"identity-file": path}) as client:
        assert isinstance(client.store, EncryptedStore)


def test_what_waits_for_keys_is_found_through_the_wrapper(tmp_path) -> None:
    import threading

    _, _, identities = make_identity()
    inner = MemoryStore("mine")
    store = store_for(identities, RetryingStore(inner, threading.Event()))
    assert isinstance(store, PassesWaiting)
    assert store.awaiting is inner
    assert ObjectReplicaClient(store).url == inner.url
