"""Ships a log to an encrypted file replica and restores it, against the same without encryption, in new processes."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path

import click
from logs import make_log
from measuring import (
    Finding,
    Report,
    bench_folder,
    empty,
    folder_bytes,
    interleave,
    measure,
    peak_memory,
    rate,
    ratios,
    run,
    sync_tree,
)

COMMAND = Path(sys.executable).parent / "litelog"
AT_LEAST = {"ship": 0.8, "restore": 0.85}

CONFIGURATION = """
state-dir: {state}
addr: off
logs:
  - path: {log}
    replicas:
      - url: {replica}
        encryption: {encryption}
"""


class Pair:
    """A log's replica with or without encryption."""

    def __init__(self, work: Path, log: Path, name: str, encryption: str, identity: Path) -> None:
        self.folder = empty(work / name)
        self.replica, self.state = self.folder / "replica", self.folder / "state"
        self.config = work / f"{name}.yml"
        self.config.write_text(
            CONFIGURATION.format(state=self.state, log=log, replica=self.replica, encryption=encryption)
        )
        self._identity = identity

    def ship(self) -> float:
        empty(self.folder)
        return measure(lambda: run(self.ship_command()))

    def ship_command(self) -> list[str | Path]:
        return [COMMAND, "replicate", "--once", "--config", self.config]

    def restore(self, target: Path) -> float:
        empty(target)
        return measure(lambda: run(self.restore_command(target)))

    def restore_command(self, target: Path) -> list[str | Path]:
        return [COMMAND, "restore", self.replica, "-o", target / "log", "--quiet", "--identity", self._identity]


@click.command(help=__doc__)
@click.option("--folder", type=click.Path(exists=True), help="Folder to work in, on a disk.")
@click.option("--size", default=512, help="MiB of log.")
@click.option("--segment", default=64, help="MiB in a log segment.")
@click.option("--rounds", default=5, help="Number of interleaved rounds.")
@click.option("--patience", default=0.0, help="Seconds that each run may wait until the machine is quiet.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def main(folder: str | None, size: int, segment: int, rounds: int, patience: float, as_json: bool) -> None:
    report = Report(f"encryption of {size} MiB")
    with bench_folder(folder) as work:
        log, target, identity = work / "log", work / "restored", work / "identity"
        log_bytes = make_log(log, size << 20, segment_bytes=segment << 20)
        run([COMMAND, "key", "new", "-o", identity])
        public = identity.read_text().split("public key: ")[1].split()[0]
        sync_tree(log)
        plain = Pair(work, log, "plain", "none", identity)
        encrypted = Pair(work, log, "encrypted", f"{{recipients: [{public}]}}", identity)
        calls = {"ship, plain": plain.ship, "ship, encrypted": encrypted.ship}
        times = interleave(calls, rounds, patience)
        calls = {
            "restore, plain": partial(plain.restore, target),
            "restore, encrypted": partial(encrypted.restore, target),
        }
        times |= interleave(calls, rounds, patience)
        report.figures |= {name: rate(log_bytes, taken) for name, taken in times.items()}
        for what, at_least in AT_LEAST.items():
            before, after = times[f"{what}, plain"], times[f"{what}, encrypted"]
            report.findings.append(Finding(f"{what}, encrypted", f"{what}, plain", ratios(before, after), at_least))
        sizes = [folder_bytes(pair.replica) for pair in (plain, encrypted)]
        report.figures["encrypted bytes by plain bytes"] = f"{sizes[1] / sizes[0]:.5f}"
        for pair in (plain, encrypted):
            name = pair.folder.name
            peak = peak_memory(pair.restore_command(empty(target)))
            report.figures[f"peak memory of restore, {name}"] = f"{peak / 2**20:.0f} MiB"
            empty(pair.folder)
            report.figures[f"peak memory of shipping, {name}"] = f"{peak_memory(pair.ship_command()) / 2**20:.0f} MiB"
    report.print(as_json=as_json)


if __name__ == "__main__":
    main()
