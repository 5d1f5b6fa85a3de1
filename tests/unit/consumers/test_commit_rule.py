"""When a consumer commits by itself."""

from __future__ import annotations

import pytest

from litelog.consumers.commit_rule import CommitRule
from litelog.errors import ConfigError


@pytest.mark.parametrize(
    ("records", "seconds", "uncommitted", "passed", "due"),
    [
        (None, None, 9, 9.0, False),
        (3, None, 2, 99.0, False),
        (3, None, 3, 0.0, True),
        (None, 5.0, 1, 4.9, False),
        (None, 5.0, 1, 5.0, True),
        (None, 0.0, 0, 9.0, False),
        (3, 5.0, 1, 5.0, True),
        (3, 5.0, 3, 0.0, True),
    ],
)
def test_a_commit_is_due_after_enough_records_or_time(
    records: int | None, seconds: float | None, uncommitted: int, passed: float, due: bool
) -> None:
    rule = CommitRule(records, seconds)
    assert rule.is_due(uncommitted, passed) is due
    assert rule.commits is (records is not None or seconds is not None)


@pytest.mark.parametrize(("records", "seconds"), [(0, None), (None, -1.0), (-1, 1.0)])
def test_a_rule_that_nothing_fulfils_is_refused(records: int | None, seconds: float | None) -> None:
    with pytest.raises(ConfigError, match="commit after at least 1 record"):
        CommitRule(records, seconds)
