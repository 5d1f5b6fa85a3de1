"""Each job by spark-submit on a standalone cluster with speculation, while one executor is killed in a task."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from litelog.errors import ConfigError
from litelog.spark.jobs import export
from litelog.spark.jobs.local_tasks import LocalTasks
from litelog.spark.spark_session import require_spark
from tests.builders.growing_replica import GrowingReplica
from tests.builders.spark_cluster import Cluster, cluster
from tests.builders.spark_reading import table_sequences
from tests.sampling import sampled
from tests.spark.conftest import JVM, QUICK_JVM, started_by_itself

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

RECORDS = 24
"""Records of the log ``orders``; the log ``users`` has a third of them."""

CONFIG = {"spark.executor.extraJavaOptions": JVM["spark.driver.extraJavaOptions"], **JVM}


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder ``logs`` of two replicas, with a table next to it that lacks the last records of one of them."""
    folder = tmp_path_factory.mktemp("places") / "logs"
    orders = GrowingReplica(folder / "orders").grow(*[4] * (RECORDS // 4 - 1))
    export(LocalTasks(), orders.url, str(folder.parent / "exported"))
    orders.grow(4)
    GrowingReplica(folder / "users").grow(RECORDS // 3)
    return folder


@pytest.fixture(scope="module")
def standalone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    try:
        require_spark()
    except ConfigError as error:
        pytest.skip(str(error))
    with cluster(tmp_path_factory.mktemp("cluster"), QUICK_JVM) as running:
        yield running


def has_all_records(table: Path) -> bool:
    return table_sequences(table) == list(range(RECORDS))


def same_files(folder: Path, other: Path) -> bool:
    one, two = (
        {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}
        for root in (folder, other)
    )
    return bool(one) and one == two


JOBS: dict[str, tuple[list[str], Callable[[str, Path, Path], bool]]] = {
    "stats": (["{logs}/orders", "--json"], lambda said, _logs, _out: json.loads(said)["records"] == RECORDS),
    "verify": (["{logs}/orders"], lambda said, _logs, _out: "all is well" in said),
    "export": (["{logs}/orders", "{out}/table"], lambda _said, _logs, out: has_all_records(out / "table")),
    "hybrid": (
        ["{logs}/orders", "{logs}/../exported"],
        lambda said, _logs, _out: json.loads(said)["records"] == RECORDS,
    ),
    "copy": (["{logs}/*", "{out}/copies"], lambda _said, logs, out: same_files(logs, out / "copies")),
    "restore": (["{logs}/*", "{out}/restored"], lambda _said, _logs, out: len(list(out.rglob("*.log"))) == 7),
    "verify --json": (["{logs}/*"], lambda said, _logs, _out: said.count('"harmful_count":0') == 2),
    "export --json": (["{logs}/*", "{out}/tables"], lambda _said, _logs, out: has_all_records(out / "tables/orders")),
}
"""For each job its arguments, and whether what it said and wrote is right."""


@started_by_itself("cluster")
@pytest.mark.parametrize("job", sampled(list(JOBS), len(JOBS), "jobs on a cluster"))
def test_a_job_on_a_cluster_survives_the_loss_of_an_executor(
    standalone: Cluster, logs: Path, tmp_path: Path, job: str
) -> None:
    arguments, is_right = JOBS[job]
    given = [argument.format(logs=logs, out=tmp_path) for argument in arguments]
    name = job.replace(" ", "")
    done = standalone.submit(name, ["spark", *job.split(), *given, "--quiet"], CONFIG)
    assert done.returncode == 0, done.stderr[-3000:]
    assert is_right(done.stdout.replace(": ", ":") if "--json" in job else done.stdout, logs, tmp_path), done.stdout
    assert standalone.has_killed(name)
