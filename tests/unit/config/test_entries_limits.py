"""``retention`` and ``truncate`` in the configuration: the resulting policies, and mistakes with their lines."""

from __future__ import annotations

import pytest

from litelog.config import Config, load_config, make_config
from litelog.errors import InvalidConfigError
from litelog.formats.lines import LinesFormat
from litelog.log.truncation import TruncationPolicy
from litelog.replicator.wiring import check_openable, find_refused
from litelog.retention.policy import RetentionPolicy


def load(retention: str = "{}", truncate: str = "") -> Config:
    text = f"logs:\n- path: /a\n{truncate}  replicas:\n  - url: /b\n    retention: {retention}\n"
    return load_config(text, {})


def test_without_a_word_all_is_kept() -> None:
    config = load_config("logs: [{path: /a, replicas: [{url: /b}]}]", {})
    assert config.logs[0].replicas[0].retention.policy() == RetentionPolicy()
    assert not RetentionPolicy().limits
    assert config.logs[0].truncate is None


def test_configured_limits_become_the_policies() -> None:
    text = "{max-age: 30d, max-bytes: 1GiB, max-snapshots: 9, min-snapshots: 2}"
    config = load(text, "  truncate: {max-bytes: 5MiB, max-age: 36h}\n")
    assert config.logs[0].replicas[0].retention.policy() == RetentionPolicy(30 * 86400.0, 1 << 30, 9, 2)
    assert config.logs[0].truncate is not None
    assert config.logs[0].truncate.policy() == TruncationPolicy(5 << 20, 36 * 3600.0)


def test_truncation_may_wait_for_readers_by_age() -> None:
    waits = "wait-for-mirrors: 1d, wait-for-consumers: 36h, wait-for-replica-consumers: 2d"
    config = load("{}", f"  truncate: {{max-bytes: 5MiB, {waits}}}\n")
    assert config.logs[0].truncate is not None
    assert config.logs[0].truncate.policy() == TruncationPolicy(5 << 20, None, 86400.0, 36 * 3600.0, 2 * 86400.0)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{max-age: 30}", "retention.max-age: has no unit: write 30d or 30h"),
        ("{max-age: 59m}", "max-age must be at least 1h"),
        ("{max-age: 40000d}", "must be from 0s to 36500d"),
        ("{max-age: never}", "must be a duration"),
        ("{max-bytes: 0B}", "max-bytes must be more than 0"),
        ("{max-bytes: -5}", "must be 0 or more"),
        ("{max-bytes: yes}", "must be a size"),
        ("{max-snapshots: 0}", "retention.max-snapshots: "),
        ("{max-snapshots: 1.5}", "retention.max-snapshots: "),
        ("{max-snapshots: '3'}", "retention.max-snapshots: "),
        ("{min-snapshots: 0}", "retention.min-snapshots: "),
        ("{max-snapshots: 2, min-snapshots: 3}", "max-snapshots must be at least min-snapshots, which is 3"),
        ("{max-agee: 1d}", "unknown key; did you mean max-age?"),
        ("30d", "must be a mapping"),
    ],
)
def test_a_retention_that_does_not_fit_is_refused_with_its_line(text: str, said: str) -> None:
    with pytest.raises(InvalidConfigError) as caught:
        load(text)
    (problem,) = caught.value.problems
    assert problem.startswith("line 5, ")
    assert said in problem


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{}", "truncate needs max-bytes, max-age or both"),
        ("{max-size: 5MiB}", "truncate.max-size: unknown key"),
        ("{max-age: 2d, wait-for-mirrors: 1d}", "has no effect: make the wait longer"),
        ("{max-bytes: 1, wait-for-consumers: 5}", "truncate.wait-for-consumers: has no unit: write 5d or 5h"),
        ("{max-age: 5}", "truncate.max-age: has no unit: write 5d or 5h"),
        ("true", "must be a mapping"),
    ],
)
def test_a_truncation_that_does_not_fit_is_refused_with_its_line(text: str, said: str) -> None:
    with pytest.raises(InvalidConfigError) as caught:
        load(truncate=f"  truncate: {text}\n")
    assert all(problem.startswith("line 3, ") for problem in caught.value.problems)
    assert said in " ".join(caught.value.problems)


@pytest.mark.slow
def test_a_log_whose_records_are_counted_from_its_beginning_can_be_truncated_too() -> None:
    log = {
        "path": "/a",
        "format": "lines",
        "pattern": "*",
        "truncate": {"max_bytes": 1},
        "replicas": [{"url": "memory://b"}],
    }
    config = make_config("here", {"logs": [log]})
    check_openable(config.logs[0])
    assert config.logs[0].truncate.policy() == TruncationPolicy(1)


def test_a_log_whose_writer_removes_its_log_segments_cannot_be_truncated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LinesFormat, "removed_by_owner", True, raising=False)
    log = {
        "path": "/a",
        "format": "lines",
        "pattern": "*",
        "truncate": {"max_bytes": 1},
        "replicas": [{"url": "memory://b"}],
    }
    config = make_config("here", {"logs": [log]})
    (place, refused), *others = find_refused(config)
    assert (place, others) == (("logs", 0, "truncate"), [])
    assert str(refused).startswith("truncate: the writer of a lines log removes its log segments itself")
