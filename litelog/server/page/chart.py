"""The chart of an hour's lag: one bar a minute, as an SVG path, and a text alternative."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from litelog.dataclass import dataclass
from litelog.units import format_duration, format_size

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

MINUTES = 60
WIDTH, HEIGHT = 180, 28
_STEP = WIDTH // MINUTES
_BAR = _STEP - 1


class Sample(NamedTuple):
    """The lag at one moment."""

    seconds_ago: float
    lag_seconds: float
    lag_bytes: int


@dataclass(frozen=True, slots=True)
class Chart:
    """A drawing in a box of WIDTH by HEIGHT, with now on the right. Minutes without a bar were not measured."""

    within: str
    """A path: the bars of minutes in which the lag stayed within max-lag."""
    above: str
    """A path: the bars of the other minutes."""
    limit: float
    """Distance of max-lag from the top."""
    peak: str
    """The hour's largest lag, as text; empty if nothing was measured."""
    words: str
    """The text alternative."""


def draw(samples: Sequence[Sample], max_lag: float) -> Chart:
    """Draw an hour's samples, with ``max_lag`` in seconds. The scale ends at max-lag, or at a higher peak."""
    worst = max(samples, key=lambda sample: sample.lag_seconds, default=None)
    if worst is None:
        return Chart("", "", 0.0, "", "Lag over the last hour: not measured yet")
    top = max(max_lag, worst.lag_seconds) or 1.0
    minutes = _by_minute(samples)
    return Chart(
        within=_draw_bars(((at, lag) for at, lag in minutes.items() if lag <= max_lag), top),
        above=_draw_bars(((at, lag) for at, lag in minutes.items() if lag > max_lag), top),
        limit=round(HEIGHT * (1 - max_lag / top), 1),
        peak=format_duration(worst.lag_seconds) if worst.lag_seconds else "0s",
        words=_describe(samples, worst, max_lag),
    )


def _by_minute(samples: Iterable[Sample]) -> dict[int, float]:
    """The largest lag of each minute. Minute 0 ends now."""
    minutes: dict[int, float] = {}
    for sample in samples:
        minute = int(sample.seconds_ago // 60)
        if minute < MINUTES:
            minutes[minute] = max(sample.lag_seconds, minutes.get(minute, 0.0))
    return minutes


def _draw_bars(minutes: Iterable[tuple[int, float]], top: float) -> str:
    bars = []
    for minute, lag in minutes:
        height = max(1.0, round(HEIGHT * lag / top, 1))  # a measured lag of zero is visible, too
        bars.append(f"M{WIDTH - (minute + 1) * _STEP} {HEIGHT}v-{height:g}h{_BAR}V{HEIGHT}z")
    return "".join(bars)


def _describe(samples: Sequence[Sample], worst: Sample, max_lag: float) -> str:
    measured = format_duration(max(sample.seconds_ago for sample in samples))
    if not worst.lag_seconds:
        return f"Lag over the last hour: none, measured for {measured}"
    ago = "now" if worst.seconds_ago < 60 else f"{format_duration(worst.seconds_ago)} ago"
    above = ", above max-lag" if worst.lag_seconds > max_lag else ""
    return (
        f"Lag over the last hour: at most {format_duration(worst.lag_seconds)} ({format_size(worst.lag_bytes)}) "
        f"{ago}{above}, measured for {measured}"
    )
