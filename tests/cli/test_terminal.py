"""What a terminal shows while a long verb runs and afterwards, at two widths."""

from __future__ import annotations

import pytest

from tests.builders.terminal import Screen, shown_by

pytestmark = pytest.mark.process

MARK = "\x1b[0h"
"""Printed while the bar is drawn. A terminal ignores it."""

BAR = """
import sys
from litelog_cli.logging_setup import say
from litelog_cli.output import echo
from litelog_cli.progress import showing_progress
now = 0.0
with showing_progress("restore drill", quiet=False, steady=lambda: now) as show:
    now = 3.0
    show(100 << 20, 200 << 20)
    say("litelog: a warning that comes in between and is wider than a narrow terminal", "between")
    show(120 << 20, 200 << 20)
    print("\\x1b[0h", end="", flush=True, file=sys.__stdout__)
echo("restored 200.0 MiB")
"""

STATUS = """
from litelog_cli.logging_setup import say
from litelog_cli.progress import watching_status
say("following file:///replica", "following")
text = "following: 100.0 MiB appended, the last of it 1d02h ago, and a tail that is wider than the terminal is"
with watching_status(quiet=False, look=lambda: text):
    say("litelog: a warning that comes in between and is wider than a narrow terminal", "between")
say("followed up to the end", "followed")
"""

WARNING = "litelog: a warning that comes in between and is wider than a narrow terminal"


@pytest.mark.parametrize("width", [80, 40])
@pytest.mark.parametrize(
    ("script", "before", "after"),
    [
        (BAR, [], ["restored 200.0 MiB"]),
        (STATUS, ["following file:///replica"], ["followed up to the end"]),
    ],
    ids=["bar", "status"],
)
def test_a_finished_display_leaves_nothing_on_the_screen(
    script: str, before: list[str], after: list[str], width: int
) -> None:
    screen = Screen(width)
    screen.feed(shown_by(script, width))
    lines, below = screen.lines[: screen.row], screen.lines[screen.row :]
    assert (any(below), screen.column) == (False, 0), "a newline ends the output"
    between = lines[len(before) : len(lines) - len(after)]
    assert [lines[: len(before)], " ".join(between), lines[len(lines) - len(after) :]] == [before, WARNING, after]


@pytest.mark.parametrize(("width", "wide"), [(80, True), (40, False)])
def test_a_bar_is_one_whole_line(width: int, wide: bool) -> None:
    screen = Screen(width)
    screen.feed(shown_by(BAR, width).partition(MARK)[0])
    drawn = screen.lines[-1]
    assert drawn.startswith("restore drill ")
    assert "100.0/200.0 MiB" in drawn or "120.0/200.0 MiB" in drawn
    assert drawn.endswith("-:--:--")
    assert ("\u2501" in drawn) is wide


@pytest.mark.parametrize(
    ("before", "colored"),
    [
        ("", True),
        ("import os; os.environ['NO_COLOR'] = '1'", False),
        ("import os; os.environ['TERM'] = 'dumb'", False),
    ],
)
def test_the_verdict_has_a_color_on_a_terminal_unless_none_is_wanted(before: str, colored: bool) -> None:
    script = f"{before}\nfrom litelog_cli.output import echo_colored\necho_colored('Not safe \\x1b[2J', 'red')"
    shown = shown_by(script, 80)
    assert ("\x1b[31m" in shown) is colored
    assert "Not safe \\x1b[2J" in shown
    assert "\x1b[2J" not in shown
