"""Parts of plans that only Python reads: pickled for Java, which passes them on."""

from __future__ import annotations

import io
import pickle
from typing import Any

from litelog.objects.chain import ChainState, Identity
from litelog.objects.claim import Claim, Encryption, Relation
from litelog.objects.layout import Fencing
from litelog.objects.position import Position
from litelog.spark.jvm.conditions import QueriedLog
from litelog.spark.options import Mode, Range
from litelog.spark.scan.partitions import LocalPiece, PlannedLog, WalPiece, make_sealed_piece

_PARTS = frozenset(
    (part.__module__, part.__name__)
    for part in (
        *(QueriedLog, PlannedLog, WalPiece, LocalPiece, make_sealed_piece, Range, Mode),
        *(Claim, Encryption, Relation, Fencing, Position, ChainState, Identity),
    )
) | {("array", "array"), ("array", "_array_reconstructor")}
"""The names that a pickled part of a plan may hold."""


def pickled(value: object) -> bytes:
    """A value that only Python reads."""
    return pickle.dumps(value)


def unpickled(data: bytes) -> Any:
    """The value that ``pickled`` wrote. Makes only parts of plans, since users of SQL can write a plan, too."""
    return _PlanReader(io.BytesIO(data)).load()


class _PlanReader(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _PARTS:
            raise pickle.UnpicklingError(f"a plan does not hold {module}.{name}")
        return super().find_class(module, name)
