"""ReplicaClient: the library's interface to a destination, between replication and storage."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from litelog.dataclass import dataclass

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from typing import BinaryIO

    from typing_extensions import Buffer

    from litelog.objects.claim import Claim
    from litelog.objects.position import ClaimName, Generation, Position
    from litelog.objects.wal_segment import WalSegment
    from litelog.objects.wal_stream import MirrorEnd


@dataclass(frozen=True, slots=True, order=True)
class WalSegmentInfo:
    """A WAL segment as a listing shows it. ``size`` is the object's, in bytes."""

    position: Position
    size: int


@dataclass(frozen=True, slots=True, order=True)
class IndexedInfo:
    """A sealed segment, snapshot or checkpoint as a listing shows it. ``size`` is the object's, in bytes."""

    generation: Generation
    index: int
    size: int


class ReplicaClient(Protocol):
    """One replica. Several threads call it at once.

    Every write is create-only: it raises ExistsError if the key is taken, and returns only when the object is durable.
    Reads raise NotFoundError for a missing object. Listings are in order, empty if nothing is there, and skip foreign
    names. Deleting a missing object does nothing. Other failures raise StoreError. One implementation is expected:
    ``ObjectReplicaClient``.
    """

    url: str
    """The destination without credentials: fit for logs and messages."""
    enforces_create_only: bool
    """Whether create-only holds against every other writer, wherever it runs."""

    def claims(self, since: int = 0) -> list[ClaimName]:
        """The names of the claims of epoch ``since`` and above, in the order of epochs. One listing.

        With isolated owners, one epoch may have several claims. They are in the order of their generations, after the
        claim that is not isolated.
        """

    def require_readable(self, claim: Claim) -> None:
        """Raise an error if the objects of the claim's generation are encrypted, and cannot be decrypted.

        Raises:
            ConfigError: No identity is given, or none that reads it.
            CorruptObjectError: The claim is damaged, or somebody without the key changed it.
        """

    def write_claim(self, name: ClaimName, body: bytes) -> None:
        """Create a claim. Raises ValueError for an invalid epoch or generation."""

    def read_claim(self, name: ClaimName) -> bytes:
        """The claim of that name."""

    def generations(self) -> list[Generation]:
        """The generations that hold objects, ascending. One short listing for each."""

    def wal_segments(self, generation: Generation, since: Position | None = None) -> Iterator[WalSegmentInfo]:
        """The WAL segments of a generation from ``since`` on, listed page by page as the iterator is consumed."""

    def write_wal_segment(self, position: Position, body: Iterable[Buffer]) -> None:
        """Create the WAL segment at ``position`` from the buffers, joined."""

    def read_wal_segment(self, position: Position, start: int = 0, length: int | None = None) -> bytes:
        """The object's bytes from ``start`` on, or ``length`` of them (fewer at its end)."""

    def await_wal_segment(self, position: Position, seconds: float, wait: Callable[[float], object]) -> None:
        """Return once there may be a WAL segment at ``position``, after about ``seconds`` at the latest.

        ``wait`` waits for the given seconds, or less. A store that does not report new objects needs it.
        """

    def stream_wal(
        self, position: Position, seconds: float, limit: int, mirror: str | None = None, before: MirrorEnd | None = None
    ) -> Iterator[WalSegment]:
        """The WAL segments from ``position`` on as a daemon sends them, which may not be in the replica yet.

        Args:
            position: Where the first one begins: at a commit.
            seconds: How long to wait for the first one.
            limit: End after about this many bytes.
            mirror: The name of the mirror that asks, which is durable up to ``position``; None: nothing is mirrored.
            before: What that mirror has before ``position``: the log has to have the same; None: it is not compared.

        Raises:
            NotSupportedError: No daemon serves the log there.
            PrunedError: The daemon cannot send from this position on. The replica has what is needed.
            DivergedError: The log does not continue there: its history forked, or another generation has begun.
            CorruptObjectError, StoreError: The stream is damaged, broke off, or was refused.
        """

    def delete_wal_segments(self, positions: Iterable[Position]) -> None:
        """Delete WAL segments."""

    def sealed_segments(self, generation: Generation, since: int = 0) -> Iterator[IndexedInfo]:
        """The sealed segments of a generation from index ``since`` on, listed page by page as consumed."""

    def write_sealed_segment(self, generation: Generation, index: int, body: Iterable[Buffer]) -> None:
        """Create the sealed segment of ``index`` from buffers that are taken as they are made (``ObjectStore.put``)."""

    def read_sealed_segment(self, generation: Generation, index: int, start: int, length: int) -> bytes:
        """``length`` of the object's bytes (fewer at its end) from ``start`` on."""

    def open_sealed_segment(
        self, generation: Generation, index: int, start: int = 0, length: int | None = None
    ) -> BinaryIO:
        """Open the object from ``start`` on, or ``length`` bytes of it, to be read once and closed. A large object can
        be read frame by frame. As ``ObjectStore.open``."""

    def delete_sealed_segments(self, places: Iterable[tuple[Generation, int]]) -> None:
        """Delete sealed segments, each by its generation and index."""

    def snapshots(self, generation: Generation, since: int = 0) -> Iterator[IndexedInfo]:
        """The snapshots of a generation from index ``since`` on, listed page by page as the iterator is consumed."""

    def newest_snapshots(self, generation: Generation, count: int) -> list[IndexedInfo]:
        """The newest snapshots of a generation, up to ``count``, newest first. One listing."""

    def snapshots_and_wal_segments(
        self, generation: Generation, since: int = 0
    ) -> Iterator[IndexedInfo | WalSegmentInfo]:
        """The snapshots of a generation from index ``since`` on, then all its WAL segments, in one listing, page by
        page."""

    def write_snapshot(self, generation: Generation, index: int, body: Iterable[Buffer]) -> None:
        """Create the snapshot at the start of ``index``."""

    def read_snapshot(self, generation: Generation, index: int) -> bytes:
        """The snapshot at the start of ``index``."""

    def delete_snapshots(self, places: Iterable[tuple[Generation, int]]) -> None:
        """Delete snapshots, each by its generation and index."""

    def checkpoints(self) -> Iterator[IndexedInfo]:
        """The checkpoints of all generations, each with its number as ``index``: by generation and then by number. One
        listing, page by page as the iterator is consumed."""

    def write_checkpoint(self, generation: Generation, number: int, body: Iterable[Buffer]) -> None:
        """Create the checkpoint of that number."""

    def read_checkpoint(self, generation: Generation, number: int) -> bytes:
        """The checkpoint of that number."""

    def close(self) -> None:
        """Release the client's resources. Idempotent."""
