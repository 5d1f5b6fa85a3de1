"""The formats are tested with the compiled library and without it."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

import pytest

from litelog.native.library import load, without_library
from tests.sampling import NIGHTLY, SEED

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(params=["compiled", "NumPy"])
def both_ways(request: pytest.FixtureRequest) -> Iterator[None]:
    """Runs a test twice."""
    if request.param == "NumPy":
        with without_library():
            yield
    elif load() is None:
        pytest.skip("the compiled library is not built")
    else:
        yield


@pytest.fixture(autouse=True)
def _one_way(request: pytest.FixtureRequest) -> Iterator[None]:
    """Runs half of the other tests without the library, which the seed chooses. A night runs all of them twice."""
    chosen = not NIGHTLY and Random(f"{SEED} {request.node.nodeid}").random() < 0.5
    if "both_ways" not in request.fixturenames and chosen:
        with without_library():
            yield
    else:
        yield
