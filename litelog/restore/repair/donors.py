"""The other replicas of a log that is restored: where bytes are taken from that the chosen one lost."""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING

from litelog.errors import CorruptionError, LitelogError, NotFoundError
from litelog.events import fields
from litelog.reading.generations import read_claim
from litelog.restore.repair.agreement import Verdict, agreed_place
from litelog.restore.repair.generation_bytes import History, Place

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from litelog.formats import LogFormat
    from litelog.objects.claim import Claim
    from litelog.restore.repair.generation_bytes import Chunk
    from litelog.stores.replica_client import ReplicaClient

_logger = logging.getLogger(__name__)


class NoDonorError(LitelogError):
    """No other replica has the bytes. Never the error that a restore ends with."""


class Donors:
    """The histories of other replicas, as far as they are the chosen one's. Shared by threads.

    Nothing is asked of a replica before something is missing. One whose history is another one, or that cannot be
    compared, gives nothing, however alike its bytes look.
    """

    def __init__(
        self, chosen: History, others: Sequence[ReplicaClient], agreed: Sequence[tuple[History, Place]] = ()
    ) -> None:
        """``agreed``: histories of ``others`` that are known to agree, and up to where: the chosen replica need not be
        there any more to use them."""
        self._chosen = chosen
        self._others = others
        self._format: LogFormat = chosen.format
        self._agreed = list(agreed)
        self._known = {(id(history.client), history.claim.generation) for history, _ in agreed}
        self._left = self._find()
        self._lock = threading.Lock()

    def chunks(self, name: str, start: int, stop: int, *, proven: bool = True) -> Iterator[Chunk]:
        """Bytes [start, stop) of a log segment, without a hole. NoDonorError where nobody has them (any more).

        ``proven``: only from where the histories are known to be one up to ``stop``. Else they may part before: for
        callers who have a digest of what they look for.
        """
        order = self._format.segment_order(name)
        wanted = None if order is None else Place(order, name, stop)
        for history, agreed in self._each():
            if start >= stop:
                return
            if wanted is None or (proven and not agreed.reaches(wanted)):
                continue
            try:
                for chunk in history.chunks(name, start, stop):
                    yield chunk
                    start = chunk.end
            except LitelogError as error:
                extra = fields("donor-failed", replica=history.url, file=name)
                _logger.warning("%s: cannot help out: %s", history.url, error, extra=extra)
        if start < stop:
            raise NoDonorError(f"{name}: no other replica has bytes {start} to {stop}")

    def finished_size(self, name: str) -> int | None:
        """The size of a log segment that is finished; None if nobody knows."""
        order = self._format.segment_order(name)
        for history, agreed in self._each():
            file = history.find(name)
            size = None if file is None else history.finished_size(file)
            if order is not None and size is not None and agreed.reaches(Place(order, name, size)):
                return size
        return None

    def name_beside(self, name: str, distance: int) -> str | None:
        """The log segment so many after ``name`` (before it, if negative); None if nobody knows."""
        for history, _ in self._each():
            names = [file.name for file in history.files()]
            at = names.index(name) + distance if name in names else -1
            if 0 <= at < len(names) and names[at]:
                return names[at]
        return None

    def _each(self) -> Iterator[tuple[History, Place]]:
        """All that agree, each up to where; looked for as far as the caller goes."""
        at = 0
        while True:
            with self._lock:
                if at == len(self._agreed):
                    found = next(self._left, None)
                    if found is None:
                        return
                    self._agreed.append(found)
                history = self._agreed[at]
            yield history
            at += 1

    def _find(self) -> Iterator[tuple[History, Place]]:
        for client in self._others:
            try:
                yield from self._agreeing(client)
            except LitelogError as error:
                extra = fields("donor-failed", replica=client.url)
                _logger.warning("%s: cannot help out: %s", client.url, error, extra=extra)

    def _agreeing(self, client: ReplicaClient) -> Iterator[tuple[History, Place]]:
        """The generations of a replica that hold the chosen history, newest first."""
        for claim in readable_claims(client):
            known = (id(client), claim.generation) in self._known
            if not known and same_log(claim, self._chosen.claim, self._format):
                history = History(client, claim, self._format)
                verdict, place = agreed_place(self._chosen, history)
                if verdict is Verdict.SAME and place is not None:
                    yield history, place


def readable_claims(client: ReplicaClient) -> Iterator[Claim]:
    """The claims that are whole, newest first; a GET for each, as they are taken."""
    for name in reversed(client.claims()):
        try:
            yield read_claim(client, name)
        except (CorruptionError, NotFoundError) as error:
            extra = fields("claim-damaged", replica=client.url, claim=str(name))
            _logger.warning("%s: %s", client.url, error, extra=extra)


def same_log(one: Claim, two: Claim, log_format: LogFormat) -> bool:
    """Whether two claims can be of one log. Where the format gives logs no id, each replica has made one up."""
    return one.format == two.format and (one.log == two.log or not log_format.has_log_id)
