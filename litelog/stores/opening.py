"""Opens the client of a replica for a program that reads it: with retries, until it is closed."""

from __future__ import annotations

import shlex
import threading
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING

from litelog.encryption.identities import find_identities
from litelog.errors import CorruptObjectError, EncryptedError, NoReplicaError, ReplicaGapError, StoreError
from litelog.stores.missing import describe_missing
from litelog.stores.object_store import ObjectReplicaClient
from litelog.stores.registry import open_store, open_writable_store
from litelog.stores.retrying_store import RetryingStore

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from litelog.stores.object_store import ObjectStore
    from litelog.stores.retrying_store import RetryPolicy

DAMAGE_ADVICE = (
    "litelog verify {} lists what is damaged there. A restore from several replicas reads that from another one"
)
"""The advice about a damaged replica."""


def open_retrying(
    url: str, options: Mapping[str, object] | None, stop: threading.Event, policy: RetryPolicy | None = None
) -> ObjectReplicaClient:
    """Open a client of the replica at ``url``, with retries until ``stop`` is set.

    Args:
        url: The replica's URL or path.
        options: Its backend's own options, and ``identity-file``.
        stop: Ends a wait between two attempts.
        policy: How long requests are repeated; None: READING.

    Raises:
        ConfigError: The URL, an option or the identity is invalid, or no installed package serves the scheme.
    """
    return ObjectReplicaClient(decrypting(RetryingStore(open_store(url, options), stop, policy), options))


def decrypting(store: ObjectStore, options: Mapping[str, object] | None) -> ObjectStore:
    """``store``, so that it reads encrypted generations, if the options or the environment name an identity.

    Raises ConfigError: the identity cannot be used.
    """
    identities = find_identities(options or {})
    if identities is None:
        return store
    from litelog.stores.encrypted_store import EncryptedStore, IdentityKeys  # noqa: PLC0415 - few replicas need it

    return EncryptedStore(store, IdentityKeys(identities))


def open_copy(
    source: ObjectReplicaClient, url: str, options: Mapping[str, object] | None, stop: threading.Event
) -> ObjectReplicaClient:
    """Open the place to which ``source`` is copied, as ``open_retrying`` does. What was decrypted to verify it is
    encrypted there again, for the same recipients. Raises ConfigError also for a log that a daemon serves."""
    from litelog.stores.encrypted_store import EncryptedStore  # noqa: PLC0415 - few replicas need it

    store = RetryingStore(open_writable_store(url, options), stop)
    return ObjectReplicaClient(source.store.for_copy(store) if isinstance(source.store, EncryptedStore) else store)


@contextmanager
def opened_replica(
    url: str,
    options: Mapping[str, object] | None = None,
    *,
    is_only: bool = True,
    policy: RetryPolicy | None = None,
    stop: threading.Event | None = None,
) -> Iterator[ObjectReplicaClient]:
    """Open a client as ``open_retrying`` does, and close it at the end.

    Args:
        url: As for ``open_retrying``.
        options: As for ``open_retrying``.
        is_only: The block reads no other replica, so its errors are this one's: they are named as by
            ``naming_replica``.
        stop: Ends a wait between two attempts, once the caller sets it; None: only the end of the block does.
        policy: As for ``open_retrying``.
    """
    ended = threading.Event()
    client = open_retrying(url, options, stop or ended, policy)
    with _closing(client, ended), naming_replica(client) if is_only else nullcontext():
        yield client


@contextmanager
def opened_copy(
    source: ObjectReplicaClient, url: str, options: Mapping[str, object] | None = None
) -> Iterator[ObjectReplicaClient]:
    """Open a client as ``open_copy`` does, and close it at the end. Errors are named as by ``naming_replica``."""
    stop = threading.Event()
    client = open_copy(source, url, options, stop)
    with _closing(client, stop), naming_replica(client):
        yield client


@contextmanager
def _closing(client: ObjectReplicaClient, stop: threading.Event) -> Iterator[None]:
    try:
        yield
    finally:
        stop.set()
        client.close()


@contextmanager
def naming_store(url: str) -> Iterator[None]:
    """Make a StoreError of the block name the store at ``url``."""
    try:
        yield
    except StoreError as error:
        if url not in str(error):
            error.place = url
        raise


@contextmanager
def naming_replica(client: ObjectReplicaClient) -> Iterator[None]:
    """Make an error of the block name the client's replica: a StoreError, or damage.

    A NoReplicaError says what is there instead of a replica.
    """
    try:
        with naming_store(client.url):
            yield
    except EncryptedError:
        raise EncryptedError(client.url) from None
    except (CorruptObjectError, ReplicaGapError) as error:
        if not error.lines:
            error.lines = (f"{client.url}: {error}", DAMAGE_ADVICE.format(shlex.quote(client.url)))
        raise
    except NoReplicaError as error:
        if error.url != client.url:
            raise
        raise NoReplicaError(client.url, describe_missing(client.store)) from error
