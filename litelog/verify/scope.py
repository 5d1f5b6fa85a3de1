"""How much of a replica is read: all of it, or all of its structure and a share of its contents."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random


@dataclass(frozen=True, slots=True)
class Scope:
    """Which contents are read. Structure (claims, snapshots, headers, footers) always is."""

    share: float = 1.0
    """Of the contents, 0 to 1."""
    seed: int = 0
    """What chooses them: the same seed chooses the same of the same keys, whatever lies beside them."""

    def __post_init__(self) -> None:
        if not 0 <= self.share <= 1:
            raise ValueError(f"a share is from 0 to 1, not {self.share}")

    @property
    def is_all(self) -> bool:
        return self.share >= 1

    def takes(self, key: str, part: int = 0) -> bool:
        """Whether the contents of ``key`` (of its ``part``, where it is read in parts) are read."""
        return self.is_all or Random(f"{self.seed} {key} {part}").random() < self.share  # noqa: S311  no secret
