"""The names of a replica's objects. No other module builds or parses them.

epochs/<epoch:8 hex>.json                                           a claim
epochs/<epoch:8 hex>-<generation>.json                              a claim under isolated fencing
generations/<generation>/wal/<index:16 hex>/<offset:16 hex>.wal.lz4
generations/<generation>/segments/<index:16 hex>.segment.lz4
generations/<generation>/snapshots/<index:16 hex>.snapshot.lz4
checkpoints/<generation>/<number:16 hex>.json                       a checkpoint
consumers/<name>/<revision:16 hex>.json                             where a consumer of the replica is
trials/<16 hex>/...                                                 left by a trial of the store: no reader uses it

Specified in litelog/objects/README.md#layout.
"""

from __future__ import annotations

import re
from enum import StrEnum

from litelog.objects.position import ClaimName, Generation, Position

CLAIMS = "epochs/"
GENERATIONS = "generations/"
CHECKPOINTS = "checkpoints/"
CONSUMERS = "consumers/"
TRIALS = "trials/"
ROOTS = (CLAIMS, GENERATIONS)
"""A folder that holds any of these is a replica, and not a log."""

MAX_REVISION = (1 << 63) - 1
"""The highest revision of a consumer's position."""

_CLAIM = re.compile(r"epochs/([0-9a-f]{8})(?:-([0-9a-f]{16}))?\.json")
_WAL = re.compile(r"generations/([0-9a-f]{16})/wal/([0-9a-f]{16})/([0-9a-f]{16})\.wal\.lz4")
_SEALED = re.compile(r"generations/([0-9a-f]{16})/segments/([0-9a-f]{16})\.segment\.lz4")
_SNAPSHOT = re.compile(r"generations/([0-9a-f]{16})/snapshots/([0-9a-f]{16})\.snapshot\.lz4")
_CONSUMER_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_CONSUMER = re.compile(r"consumers/([A-Za-z0-9][A-Za-z0-9._-]{0,99})/([0-7][0-9a-f]{15})\.json")
_CHECKPOINT = re.compile(r"checkpoints/([0-9a-f]{16})/([0-7][0-9a-f]{15})\.json")
_GENERATION = re.compile(r"(?:generations|checkpoints)/([0-9a-f]{16})/.*", re.DOTALL)


class Fencing(StrEnum):
    """The means that keeps the owners of a replica apart. A claim's name states it, no matter what the store can do
    today."""

    REQUIRED = "required"
    """The store fences: it refuses one of two create-only puts of a key. litelog refuses a store that does not."""
    ISOLATED = "isolated"
    """Names alone: an owner writes only to its own generations. Two owners may write at the same time."""


def claim_key(epoch: int, isolated: Generation | None = None) -> str:
    """A claim's key. ``isolated`` is the generation to append, if the store has no create-only put."""
    return f"epochs/{_hex(epoch, 8)}{'-' + isolated if isolated else ''}.json"


def generation_prefix(generation: Generation) -> str:
    """The prefix of the keys of all objects of a generation."""
    return f"{GENERATIONS}{generation}/"


def wal_key(position: Position) -> str:
    """The key of the WAL segment that starts at ``position``."""
    return f"{wal_prefix(position.generation, position.index)}{_hex(position.offset, 16)}.wal.lz4"


def wal_prefix(generation: Generation, index: int | None = None) -> str:
    """The prefix of the keys of a generation's WAL segments, or of those of one index."""
    prefix = f"generations/{generation}/wal/"
    return prefix if index is None else f"{prefix}{_hex(index, 16)}/"


def sealed_key(generation: Generation, index: int) -> str:
    """The key of a sealed segment."""
    return f"{sealed_prefix(generation)}{_hex(index, 16)}.segment.lz4"


def sealed_prefix(generation: Generation) -> str:
    """The prefix of the keys of a generation's sealed segments."""
    return f"generations/{generation}/segments/"


def snapshot_key(generation: Generation, index: int) -> str:
    """The key of the snapshot that describes the log at the start of ``index``."""
    return f"{snapshot_prefix(generation)}{_hex(index, 16)}.snapshot.lz4"


def snapshot_prefix(generation: Generation) -> str:
    """The prefix of the keys of a generation's snapshots."""
    return f"generations/{generation}/snapshots/"


def after_generation(generation: Generation) -> str:
    """A key after every key of ``generation`` and before the next generation's: a listing can continue from it."""
    return f"generations/{generation}0"


def is_consumer_name(name: str) -> bool:
    """Whether a consumer may have that name: it is a part of a key, and a file's name."""
    return _CONSUMER_NAME.fullmatch(name) is not None


def consumer_key(name: str, revision: int) -> str:
    """The key of a consumer's position at a revision. Raises ValueError for a name that no consumer may have."""
    return f"{consumer_prefix(name)}{_hex(revision, 16)}.json"


def consumer_prefix(name: str) -> str:
    """The prefix of the keys of a consumer's positions. Raises ValueError for a name that no consumer may have."""
    if not is_consumer_name(name):
        raise ValueError(f"not a name of a consumer: {name!r}")
    return f"{CONSUMERS}{name}/"


def checkpoint_key(generation: Generation, number: int) -> str:
    """The key of the checkpoint of that number, which the generation's owner put."""
    return f"{CHECKPOINTS}{generation}/{_hex(number, 16)}.json"


def trial_prefix(number: int) -> str:
    """The prefix of the keys of a trial's objects. ``number`` is random, so that no two trials collide."""
    return f"{TRIALS}{_hex(number, 16)}/"


def is_trial(key: str) -> bool:
    """Whether an object belongs to a trial of the store, not to a replica."""
    return key.startswith(TRIALS)


def parse_claim(key: str) -> ClaimName | None:
    """The name of a claim's key; None for any other key."""
    match = _CLAIM.fullmatch(key)
    return ClaimName(int(match[1], 16), Generation(match[2]) if match[2] else None) if match else None


def parse_wal(key: str) -> Position | None:
    """The position of a WAL segment's key; None for any other key."""
    match = _WAL.fullmatch(key)
    return Position(Generation(match[1]), int(match[2], 16), int(match[3], 16)) if match else None


def parse_sealed(key: str) -> tuple[Generation, int] | None:
    """(generation, index) of a sealed segment's key; None for any other key."""
    match = _SEALED.fullmatch(key)
    return (Generation(match[1]), int(match[2], 16)) if match else None


def parse_snapshot(key: str) -> tuple[Generation, int] | None:
    """(generation, index) of a snapshot's key; None for any other key."""
    match = _SNAPSHOT.fullmatch(key)
    return (Generation(match[1]), int(match[2], 16)) if match else None


def parse_consumer(key: str) -> tuple[str, int] | None:
    """(name, revision) of the key of a consumer's position; None for any other key."""
    match = _CONSUMER.fullmatch(key)
    return (match[1], int(match[2], 16)) if match else None


def parse_checkpoint(key: str) -> tuple[Generation, int] | None:
    """(generation, number) of a checkpoint's key; None for any other key."""
    match = _CHECKPOINT.fullmatch(key)
    return (Generation(match[1]), int(match[2], 16)) if match else None


def parse_generation(key: str) -> Generation | None:
    """The generation whose owner put the object of a key; None for any other key. If the generation is encrypted, so is
    the object."""
    match = _GENERATION.fullmatch(key)
    return Generation(match[1]) if match else None


def _hex(number: int, digits: int) -> str:
    """``number`` in ``digits`` hex digits. ValueError if it needs more: readers would skip its key as foreign."""
    text = f"{number:0{digits}x}"
    if number < 0 or len(text) > digits:
        raise ValueError(f"{number} does not fit in {digits} hex digits")
    return text
