"""The commands, the configurations and the code in the documents work.

The blocks of a document run one after the other in one shell and one empty folder, as a reader would copy them. S3 is
moto's, over HTTP, and ``aws`` uses the same server. ``kubectl`` is a stand-in that knows the manifests, and starts
nothing. Blocks with Spark run in ``tests/spark``, those that change the machine in ``test_systemd_machine.py``.
"""

from __future__ import annotations

import ast
import os
import re
import signal
import socket
import subprocess
import sys
from contextlib import suppress
from dataclasses import replace
from importlib import import_module
from importlib.util import find_spec
from shutil import which
from textwrap import dedent
from typing import TYPE_CHECKING

import pytest

from litelog.errors import ConfigError
from replica_clients.s3.settings import read_settings
from tests.builders.documents import DOCUMENTS, PACKAGE_DOCUMENTS, ROOT, RUN, Block, blocks_of, section
from tests.builders.recorded_logs import unpack
from tests.builders.servers import permissions_checked
from tests.builders.short_waits import RUN_COMMAND, SHORT_TRIAL
from tests.warm import COLD_STARTS

if TYPE_CHECKING:
    from pathlib import Path

    from tests.builders.servers import S3Server
    from tests.warm import Warm

BLOCKS = {document: [each for each in blocks_of(document) if each.language in RUN] for document in DOCUMENTS}
HERE = {
    document: [
        each
        for each in blocks
        if each.reason is None and each.missing is None and not each.uses_spark and not each.on_machine
    ]
    for document, blocks in BLOCKS.items()
}
BUILDERS = ROOT / "tests" / "builders"
DEADLINE_SECONDS = 240
LOOP_SECONDS = 0.05
"""What ``sleep`` takes in the documents' scripts, which sleep in loops that wait for a condition."""

PYTHON = 'import sys; exec(compile(sys.stdin.read(), "<stdin>", "exec"), {"__name__": "__main__"})'
"""What ``python -`` does."""

AWS = "import sys; from tests.builders.fake_aws import main; main(sys.argv[1:])"

PORT = "9977"
"""The daemon's default port. Another daemon on this machine may use it, so the tests replace it."""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


class Shell:
    """A shell in an empty folder, with the tests' ``litelog``, ``python`` and ``aws``."""

    def __init__(self, folder: Path, server: S3Server, warm: Warm) -> None:
        self._pids = folder / "pids"
        self._pids.touch()
        administrator = server.make_user_for(["*"], ["*"])
        self.folder = folder / "work"
        self.folder.mkdir()
        programs = folder / "bin"
        programs.mkdir()
        start = f'exec "{sys.executable}"'
        forked = f"{start} -I -S {BUILDERS / 'warm_litelog.py'}"
        programs_of = {
            "litelog": f'{start} -m litelog_cli "$@"',
            "python": f'{start} "$@"',
            "python3": f'{start} "$@"',
            "aws": f'{start} {BUILDERS / "fake_aws.py"} "$@"',
            "kubectl": f'{start} {BUILDERS / "fake_kubectl.py"} "$@"',
            "lz4": f'{start} {BUILDERS / "fake_lz4.py"} "$@"',
            "sleep": f"exec {which('sleep')} {LOOP_SECONDS}",
        }
        if which("lz4") is not None:
            del programs_of["lz4"]
        if which("openssl") is None:
            programs_of["openssl"] = '[ "$*" = "rand -hex 32" ] && tr -dc 0-9a-f < /dev/urandom | head -c 64'
        if not COLD_STARTS:
            python, aws = programs_of["python"], programs_of["aws"]
            can_fork = '[ -n "$WARM_CONTROL" ]'  # a program that litelog started cannot
            programs_of |= {
                "litelog": f'{forked} "$@"',
                "python": f'{can_fork} && [ "$*" = - ] || {python}\nexport WARM_PROGRAM="$WARM_PYTHON"\n{forked}',
                "aws": f'{can_fork} || {aws}\nexport WARM_PROGRAM="$WARM_AWS"\n{forked} "$@"',
            }
        for name, lines in programs_of.items():
            program = programs / name
            program.write_text(f"#!/bin/sh\n{lines}\n")
            program.chmod(0o755)
        known = {name: value for name, value in os.environ.items() if not name.startswith(("AWS_", "LITELOG", "XDG_"))}
        self._environment = {
            **known,
            "PATH": f"{programs}:{os.environ['PATH']}",
            "HOME": str(folder),
            "XDG_STATE_HOME": str(folder / "state"),
            "AWS_ENDPOINT_URL": server.endpoint,
            "AWS_ACCESS_KEY_ID": administrator["access-key-id"],
            "AWS_SECRET_ACCESS_KEY": administrator["secret-access-key"],
            "WARM_CONTROL": str(warm.control),
            "WARM_PROGRAM": f"{SHORT_TRIAL}\n{RUN_COMMAND}",
            "WARM_PYTHON": PYTHON,
            "WARM_AWS": AWS,
            "WARM_PIDS": str(self._pids),
        }
        self._passed = [warm.control]

    def run(self, script: str) -> tuple[int, str, str]:
        """Run a script, and end its background processes. Returns its exit status, output and error output."""
        arguments = ["bash", "-euo", "pipefail", "-c", script]
        process = subprocess.Popen(
            arguments,
            cwd=self.folder,
            env=self._environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
            pass_fds=self._passed,
        )
        try:
            process.wait(DEADLINE_SECONDS)
        finally:
            for pid in (process.pid, *map(int, self._pids.read_text().split())):
                with suppress(ProcessLookupError):
                    os.killpg(pid, signal.SIGKILL)
        out, err = process.communicate()
        return process.returncode, out, err


def place_recorded(block: Block, folder: Path, server: S3Server) -> Block:
    """The block with the places of recorded logs replaced: below ``folder``, and in a new bucket."""
    if block.recorded is None:
        return block
    log_format, scene, place = block.recorded
    bucket, log = server.make_bucket(), unpack(log_format, scene, folder)
    for file in (each for each in log.rglob("*") if place.startswith("s3://") and each.is_file()):
        key = f"{place.removeprefix('s3://bucket/')}/{file.relative_to(log).as_posix()}"
        server.admin.put_object(Bucket=bucket, Key=key, Body=file.read_bytes())
    if place.startswith("/"):
        there = folder / place[1:]
        there.parent.mkdir(parents=True, exist_ok=True)
        log.rename(there)
    text = block.text.replace("s3://bucket/", f"s3://{bucket}/").replace(" /var/lib/", f" {folder}/var/lib/")
    return replace(block, text=text)


def script_of(blocks: list[Block], port: int) -> str:
    """The blocks as one script. It prints on its error output where each block begins."""
    parts = []
    for block in blocks:
        text = block.text
        if "addr:" not in text:
            text = re.sub(r"^logs:\n", f"addr: 127.0.0.1:{PORT}\nlogs:\n", text, flags=re.MULTILINE)
        if block.language == "yaml":
            text = f"cat > block.yml <<'END-OF-BLOCK'\n{text}END-OF-BLOCK\nlitelog config check block.yml\n"
        elif block.language == "python":
            text = f"python - <<'END-OF-BLOCK'\n{text}END-OF-BLOCK\n"
        parts.append(f"echo '== {block.place}' >&2\n{text}")
    return re.sub(rf"\b{PORT}\b", str(port), "\n".join(parts))


@pytest.mark.process
@pytest.mark.parametrize("document", [document for document, blocks in HERE.items() if blocks])
def test_the_commands_of_a_document_run_in_its_order(
    document: str, tmp_path: Path, server: S3Server, warm: Warm
) -> None:
    shell = Shell(tmp_path, server, warm)
    (tmp_path / "recorded").mkdir()
    blocks = [place_recorded(block, tmp_path / "recorded", server) for block in HERE[document]]
    with permissions_checked():
        code, out, err = shell.run(script_of(blocks, free_port()))
    assert code == 0, f"{out[-2000:]}\n{err[-4000:]}"


def test_commands_that_are_not_run_say_why_and_are_few() -> None:
    left = [each for blocks in BLOCKS.values() for each in blocks if each.reason is not None]
    assert [each.place for each in left if len(each.reason or "") < 10] == []
    everything = sum(len(blocks) for blocks in BLOCKS.values())
    assert len(left) <= everything / 10


def names_in(text: str) -> set[tuple[str, str]]:
    """The names that code takes from modules: (module, name)."""
    found = set[tuple[str, str]]()
    for node in ast.walk(ast.parse(dedent(text))):
        if isinstance(node, ast.ImportFrom):
            found.update((node.module or "", alias.name) for alias in node.names)
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "litelog":
            found.add(("litelog", node.attr))
    return found


def exists(module: str, name: str) -> bool:
    return hasattr(import_module(module), name) or find_spec(f"{module}.{name}") is not None


def test_what_the_python_of_any_document_takes_from_litelog_exists() -> None:
    """Also in blocks that are not run, and in the documents of packages."""
    blocks = [each for document in (*DOCUMENTS, *PACKAGE_DOCUMENTS) for each in blocks_of(document)]
    names = set[tuple[str, str]]().union(*(names_in(each.text) for each in blocks if each.language == "python"))
    ours = sorted((module, name) for module, name in names if module.split(".")[0] in ("litelog", "replica_clients"))
    assert {module for module, _ in ours} > {"litelog", "litelog.spark", "litelog.formats.conformance"}
    assert [f"{module}.{name}" for module, name in ours if not exists(module, name)] == []


def test_every_info_string_is_known() -> None:
    known = re.compile(r"(not-run: .+|needs: \w+|on: machine|recorded: \w+/\w+ at (/|s3://bucket/)\S+)?")
    assert [each.place for blocks in BLOCKS.values() for each in blocks if not known.fullmatch(each.info)] == []


def test_every_option_of_s3_is_explained_once() -> None:
    with pytest.raises(ConfigError, match="it has") as refused:
        read_settings("s3://bucket", {"?": ""})
    known = str(refused.value).partition("it has ")[2].rstrip(")").split(", ")
    rows = re.findall(r"^\| (`.*?) \|", section("etc/docs/s3.md", "Options of `s3://`"), re.MULTILINE)
    assert len(known) > 15
    assert sorted(re.findall(r"`([a-z0-9-]+)`", "\n".join(rows))) == known


def test_the_readme_is_short_enough_to_be_read() -> None:
    assert DOCUMENTS["README.md"].count("\n") <= 180


@pytest.mark.parametrize("name", ["demo", "test"])
def test_the_readme_has_its_two_commands(name: str) -> None:
    (command,) = re.findall(rf"<!-- {name} command -->\n```sh\n(.*)\n```", DOCUMENTS["README.md"])
    assert command.endswith({"demo": "litelog demo", "test": "pytest -m spark"}[name])
    assert "README.md" in (ROOT / ".ci" / "run").read_text(), ".ci/run does not run the second command"


def test_the_readme_leads_to_every_document() -> None:
    pages = {path for path in DOCUMENTS if path.startswith("etc/docs/")} | {"CONTRIBUTING.md", "CHANGELOG.md"}
    assert [page for page in sorted(pages) if f"]({page}" not in DOCUMENTS["README.md"]] == []


def test_every_file_that_is_for_a_service_is_explained() -> None:
    there = {path.name for path in (ROOT / "etc").iterdir() if path.is_file() and path.name != "README.md"}
    assert [name for name in sorted(there) if name not in (ROOT / "etc" / "README.md").read_text()] == []
