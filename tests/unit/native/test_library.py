"""The library is used only if it is there, can be loaded, and was built from the source that is there."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

from litelog.native import library, walks
from litelog.native.library import FOLDER, LIBRARY, describe, has_fast_checksums, load, without_library

needs_library = pytest.mark.skipif(load() is None, reason="the compiled library is not built")


def test_a_library_that_is_missing_or_no_library_is_not_used(tmp_path: Path) -> None:
    path = tmp_path / "libwalks.so.1"
    assert library._open(str(path), FOLDER) == (None, "it was not compiled when litelog was installed")
    path.write_bytes(b"\x7fELF and nothing else")
    loaded, why_not = library._open(str(path), FOLDER)
    assert (loaded, why_not.startswith("it cannot be loaded: ")) == (None, True)


@needs_library
def test_a_library_of_another_source_is_not_used(tmp_path: Path) -> None:
    copied, changed = tmp_path / "libother.so", tmp_path / "checksums.h"
    shutil.copy(LIBRARY, copied)
    for source in Path(FOLDER).glob("*.[ch]"):
        shutil.copy(source, tmp_path)
    assert library._open(str(copied), str(tmp_path))[0] is not None
    with changed.open("ab") as file:
        file.write(b"\n")
    stale = library._open(str(copied), str(tmp_path))
    assert stale == (None, "it was compiled from another source; install litelog again")


@needs_library
def test_the_library_can_be_switched_off_for_a_while() -> None:
    assert (describe(), has_fast_checksums()) == ("used", has_fast_checksums())
    with without_library():
        assert (load(), describe(), has_fast_checksums()) == (None, "not used: switched off", False)
        assert walks.find_breaks(np.zeros(1, np.int64), np.zeros(1, np.int64), 1) is None
    assert (load() is None, describe()) == (False, "used")
