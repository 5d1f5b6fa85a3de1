"""Settings, hooks and fixtures for all tests."""

from __future__ import annotations

import gc
import logging
import os
import shutil
import signal
import sys
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, settings

from litelog.native.library import without_library
from litelog.system import entry_points
from tests import sampling
from tests.builders.long_tests import LongTests
from tests.builders.worker_limits import Leftovers, WorkerLimits, build_character_tables, limit_heaps
from tests.sampling import describe, examples, make_fewer_examples
from tests.warm import PACKAGES, Warm

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.builders.servers import S3Server

# Without bytecode on disk, each run would rewrite the assertions of every test module, and the processes that tests
# start would compile everything.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# Under nohup, and in the background of a shell, these signals are ignored, and every program that a test starts would
# ignore them too. A handler is not inherited.
for _number in (signal.SIGHUP, signal.SIGINT):
    if signal.getsignal(_number) is signal.SIG_IGN:
        signal.signal(_number, lambda *_: None)

IN_MEMORY, IN_MEMORY_BYTES = "/dev/shm", 2 << 30

if not sampling.NIGHTLY and os.path.isdir(IN_MEMORY) and shutil.disk_usage(IN_MEMORY).free > IN_MEMORY_BYTES:
    # A sync takes milliseconds on a disk, and the tests make a hundred thousand of them.
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", IN_MEMORY)

limit_heaps()

if os.environ.get("LITELOG_TEST_NATIVE") == "0":
    _SWITCHED_OFF = without_library()
    _SWITCHED_OFF.__enter__()

DEFAULT_EXAMPLES = 100
"""Hypothesis's default. ``examples`` of tests/sampling.py takes fewer or more, as it does of a number that a test
names."""

MARKED = {
    "tests/cli/": "process",
    "tests/faults/": "slow",
    "tests/faults/test_consumer_crash.py": "crash",
    "tests/faults/test_export_kills.py": "process",
    "tests/faults/test_file_store_crash.py": "crash",
    "tests/faults/test_kill_cycles.py": "process",
    "tests/faults/test_mirror_network_cut.py": "process",
    "tests/faults/test_power_loss.py": "process",
    "tests/faults/test_prune_crash.py": "crash",
    "tests/faults/test_repair_crash.py": "crash",
    "tests/faults/test_restore_copies_crash.py": "crash",
    "tests/faults/test_restore_crash.py": "crash",
    "tests/faults/test_restore_sync_order.py": "crash",
    "tests/faults/test_s3_two_daemons.py": "process",
    "tests/faults/test_ship_crash.py": "crash",
    "tests/faults/test_sink_crash.py": "crash",
    "tests/faults/test_soak.py": "process",
    "tests/conformance/test_fsspec.py": "slow",
    "tests/conformance/test_looking.py": "slow",
    "tests/conformance/test_s3": "slow",
    "tests/unit/builders/test_fault_proxy.py": "slow",
    "tests/unit/replica_clients/s3/": "slow",
}
"""Markers of folders and modules, by the beginning of their paths."""

SPARK_GROUP = "spark"
SPARK_PLACES = (
    "tests/spark/",
    *(f"tests/unit/spark/test_jobs_{table}.py" for table in ("compact", "delta", "iceberg", "latest_by_key")),
    "tests/faults/test_export_kills.py",
)
"""A JVM takes seconds to start and most of a GiB, and the libraries of tables take 100 MiB. One worker runs all tests
that need them, or ``-m spark`` in a run of their own."""

UNIT_PLACE = "tests/unit/"
"""One worker runs the quick tests of a module: pytest-xdist's time for a test grows with the number of groups."""


def find_left_out(expression: str) -> frozenset[str]:
    """The markers that ``-m`` excludes: those after each ``not`` in ``not ONE and not ANOTHER``."""
    terms = [term.split() for term in expression.split(" and ")]
    return frozenset(name for term in terms if len(term) == 2 and term[0] == "not" for name in term[1:])


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Skips the import of a place if ``-m`` excludes all of its tests. These imports took half of a fast loop."""
    expression = config.option.markexpr
    left_out = find_left_out(expression)
    if "process" in left_out:
        left_out |= {"crash"}
    place = collection_path.relative_to(config.rootpath).as_posix() + "/" * collection_path.is_dir()
    of_spark = place.startswith(SPARK_PLACES)
    if (of_spark and "spark" in left_out) or (expression == "spark" and collection_path.is_file() and not of_spark):
        return True
    return any(place.startswith(marked) and marker in left_out for marked, marker in MARKED.items()) or None


@pytest.hookimpl(tryfirst=True)  # before pytest-xdist looks at the groups
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Sets the markers that a place decides. Each test sets its other markers itself."""
    for item in items:
        place = item.nodeid.partition("::")[0]
        for marked, marker in MARKED.items():
            if place.startswith(marked):
                item.add_marker(marker)
        if place.startswith(SPARK_PLACES):
            item.add_marker("spark")
            item.add_marker(pytest.mark.xdist_group(SPARK_GROUP))
        elif place.startswith(UNIT_PLACE) and not any(map(item.get_closest_marker, ("slow", "process", "xdist_group"))):
            item.add_marker(pytest.mark.xdist_group(place.rpartition("/")[2].removesuffix(".py")))
        if item.get_closest_marker("crash"):
            item.add_marker("process")


def pytest_collection_finish() -> None:
    """Excludes all imported and collected objects from later collections of cycles, which they would slow down."""
    gc.enable()
    gc.collect()
    _freeze()


def _freeze() -> None:
    gc.freeze()
    global _frozen  # noqa: PLW0603 - the collector is one for the process
    _frozen = gc.get_freeze_count()


_frozen = 0
"""How many objects the last ``_freeze`` excluded from the collections of cycles."""


class Groups:
    """Ends a run in which pytest-xdist ignores groups: each worker would start a JVM."""

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, node: Any, ids: list[str]) -> None:
        if node.config.getvalue("dist") != "loadgroup":
            return
        if any(nodeid.startswith(SPARK_PLACES) and not nodeid.endswith(f"@{SPARK_GROUP}") for nodeid in ids):
            versions = " with ".join(f"{name} {version(name)}" for name in ("pytest-xdist", "pytest"))
            raise pytest.UsageError(
                f"{versions} does not send a group of tests to one worker: install the versions that pyproject.toml "
                "asks for (pip install -e '.[test]'), or run with -n 0"
            )


@pytest.fixture(autouse=True)
def _logging_stays_as_it_was() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)


@pytest.fixture(autouse=True, scope="module")
def _registered_entries_stay_as_they_were() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(entry_points, "_registered", dict(entry_points._registered))
        yield


@pytest.fixture(autouse=True, scope="module")
def _memory_is_given_back() -> Iterator[None]:
    """Frees the memory that a module's tests used.

    fsspec has one file system in memory for the process, and glibc keeps the memory that threads have freed.
    """
    yield
    frozen_by_a_test = gc.get_freeze_count() > _frozen  # a daemon, or a Spark task, that ran in this process
    if frozen_by_a_test:
        gc.unfreeze()
    gc.collect()  # the objects of the module's fixtures, with their open files
    if frozen_by_a_test:
        _freeze()
    if "fsspec.implementations.memory" in sys.modules:
        sys.modules["fsspec.implementations.memory"].MemoryFileSystem.store.clear()
    limit_heaps()  # a daemon, or a Spark task, that ran in this process has set other limits


@pytest.hookimpl(trylast=True)  # after the test's fixtures
def pytest_runtest_teardown() -> None:
    """Closes the daemons and followers that the test left open, and collects the memory that it left."""
    for name in ("daemon_builder", "log_following"):
        if (builder := sys.modules.get(f"tests.builders.{name}")) is not None:
            builder.close_left_open()
    _leftovers.collect_if_many()


_leftovers = Leftovers()


@pytest.fixture(scope="session")
def warm() -> Iterator[Warm]:
    """A process that forks for each program that tests run to its end."""
    started = Warm(PACKAGES)
    yield started
    started.close()


@pytest.fixture(scope="session")
def _s3() -> Iterator[S3Server]:
    pytest.importorskip("boto3")
    pytest.importorskip("moto.server")
    from tests.builders.servers import s3_server

    with s3_server() as started:
        yield started


@pytest.fixture
def server(_s3: S3Server) -> Iterator[S3Server]:
    """A process's one S3 server, for a test that makes its own buckets."""
    with _s3.emptied():
        yield _s3


@pytest.fixture(scope="module")
def module_server(_s3: S3Server) -> Iterator[S3Server]:
    """A process's one S3 server, for buckets that the tests of a module share."""
    with _s3.emptied():
        yield _s3


def pytest_report_header() -> str:
    return describe()


def pytest_terminal_summary(terminalreporter: Any) -> None:
    terminalreporter.write_line(describe())


def pytest_configure(config: pytest.Config) -> None:
    gc.disable()  # until pytest has collected the tests, which all stay
    if "slow" in find_left_out(config.option.markexpr):
        make_fewer_examples()
    # The time of an example, and the time to make it, depend on the machine: no test asserts them.
    quiet = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
    settings.register_profile(sampling.PROFILE, quiet, max_examples=examples(DEFAULT_EXAMPLES))
    settings.load_profile(sampling.PROFILE)
    config.pluginmanager.register(WorkerLimits())
    config.pluginmanager.register(LongTests())
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(Groups())


@pytest.hookimpl(trylast=True)  # Hypothesis has begun by then, and workers begin afterwards
def pytest_sessionstart(session: pytest.Session) -> None:
    if not hasattr(session.config, "workerinput"):
        build_character_tables()
