"""``verify`` and ``prune``, which walk all generations, say how many there are before they begin."""

from __future__ import annotations

import pytest

pytest.importorskip("pyarrow")

from click.testing import CliRunner

from litelog_cli.main import litelog
from litelog_cli.progress import WORTH_GENERATIONS
from tests.builders.many_generations import CountedReplica, appended

CLAIMS = WORTH_GENERATIONS
"""One more than the appends: the first append claims a generation for its tasks, too."""

WALKS = {"verify": (), "prune": ("--max-age", "1d")}


@pytest.fixture(scope="module")
def replica() -> CountedReplica:
    return appended(CLAIMS - 1)


@pytest.mark.slow
@pytest.mark.parametrize("verb", WALKS)
def test_a_walk_says_how_many_generations_it_is_about_to_read(replica: CountedReplica, verb: str) -> None:
    found = CliRunner().invoke(litelog, [verb, replica.url, *WALKS[verb]])
    assert found.exit_code == 0, found.output
    assert f"{verb}: {CLAIMS} generations to walk\n" in found.stderr


@pytest.mark.parametrize("option", ["--quiet", "--json"])
@pytest.mark.slow
@pytest.mark.parametrize("verb", WALKS)
def test_no_size_is_said_if_no_progress_is_asked_for(replica: CountedReplica, verb: str, option: str) -> None:
    found = CliRunner().invoke(litelog, [verb, replica.url, *WALKS[verb], option])
    assert (found.exit_code, found.stderr) == (0, "")


@pytest.mark.slow
@pytest.mark.parametrize("verb", WALKS)
def test_a_walk_of_few_generations_says_nothing(verb: str) -> None:
    found = CliRunner().invoke(litelog, [verb, appended(1).url, *WALKS[verb]])
    assert (found.exit_code, found.stderr) == (0, "")


@pytest.mark.slow
@pytest.mark.parametrize("verb", WALKS)
def test_the_size_is_said_before_any_generation_is_read(
    replica: CountedReplica, verb: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Claims and names are listed until then, and nothing is read."""
    before: list[int] = []
    monkeypatch.setattr("litelog_cli.progress.say", lambda *_, **__: before.append(replica.store.requests["open"]))
    opened = replica.store.requests["open"]
    CliRunner().invoke(litelog, [verb, replica.url, *WALKS[verb]])
    assert before == [opened]
