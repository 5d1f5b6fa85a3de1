"""Retention on the command line: the policy that options give, and the rows and JSON of a plan."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from litelog.errors import InvalidConfigError
from litelog.units import format_size
from litelog_cli.output import format_number

if TYPE_CHECKING:
    from collections.abc import Mapping

    from litelog.retention.plan import RetentionPlan
    from litelog.retention.policy import RetentionPolicy


POLICY = ("max_age", "max_bytes", "max_snapshots", "min_snapshots")
"""The options that make a policy, by their names in Python."""


def given_policy(given: Mapping[str, Any]) -> RetentionPolicy | None:
    """The policy of the options ``given``, by their names in Python; None if all are None.

    Raises InvalidConfigError.
    """
    from litelog.config.entries import RetentionConfig
    from litelog.config.field_types import MistakesError, Source

    stated = {name: value for name, value in given.items() if value is not None}
    if not stated:
        return None
    try:
        return RetentionConfig.read(stated, Source(is_document=False, by_alias=False, by_name=True)).policy()
    except MistakesError as error:
        problems = [_render(detail["loc"], detail["msg"]) for detail in error.details()]
        raise InvalidConfigError("command line", problems) from None


def _render(location: tuple[Any, ...], message: str) -> str:
    name = "".join(f"--{part}".replace("_", "-") + ": " for part in location)
    return name + message.removeprefix("Value error, ")


def retention_rows(plan: RetentionPlan) -> list[tuple[str, str, str, str]]:
    """The rows of a plan, with what it deletes and keeps, and why: (what, objects, bytes, reason)."""
    rows: list[tuple[str, str, str, str]] = []
    for kind in dict.fromkeys(removal.kind for removal in plan.removals):
        same = [removal for removal in plan.removals if removal.kind is kind]
        size = format_size(sum(removal.size for removal in same))
        rows.append((f"{kind.value}s to delete", format_number(len(same)), size, f"{same[0].key} to {same[-1].key}"))
    for why, total in plan.stays.items():
        rows.append(("stay", format_number(total.count), format_size(total.bytes), why.value))
    if plan.cause is not None:
        rows.append(("why", "", "", plan.cause.value))
    if plan.beyond:
        rows.append(("too much", "", format_size(plan.beyond), "beyond max-bytes, but needed"))
    return rows


def json_removals(plan: RetentionPlan) -> list[dict[str, Any]]:
    """The objects that a plan deletes."""
    return [{"kind": one.kind, "object": one.key, "stored_bytes": one.size} for one in plan.removals]
