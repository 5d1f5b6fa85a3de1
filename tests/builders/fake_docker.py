"""Executes the few ``docker`` commands that the documents show, as root of a separate machine (``machine.py``).

An image is what the instructions of its Containerfile do to this machine's files: one image at a time. A container is a
process with the image's user, environment and command, and with its own mounts. Its network is the machine's.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

PLACE = Path("/exchange/docker")
IMAGE = PLACE / "image.json"


def main(arguments: list[str]) -> None:
    PLACE.mkdir(exist_ok=True)
    match arguments:
        case ["build", "-f", file, "-t", "litelog", folder]:
            _build(Path(file), Path(folder))
        case ["run", *options]:
            _run(options)
        case ["exec", name, *command]:
            container = _load(name)
            enter = ["nsenter", f"--target={container['pid']}", "--mount"]
            sys.exit(subprocess.run([*enter, *_as_user(container["variables"]), *command], check=False).returncode)
        case ["logs", name]:
            _load(name)
            sys.stdout.write((PLACE / f"{name}.log").read_text())
        case ["stop", name]:
            container = _load(name)
            os.kill(container["pid"], signal.SIGTERM)
            deadline = time.monotonic() + container["stop_timeout"]
            while Path(f"/proc/{container['pid']}").exists():
                assert time.monotonic() < deadline, "it had to be killed"
                time.sleep(0.1)
        case ["rm", name]:
            (PLACE / f"{name}.json").unlink()
        case ["volume", "rm", name]:
            subprocess.run(["rm", "-r", PLACE / "volumes" / name], check=True)
        case _:
            sys.exit(f"docker: no such command here: {arguments}")


def _build(file: Path, folder: Path) -> None:
    image: dict[str, Any] = {"variables": {}}
    text = re.sub(r"\\\n", "", file.read_text())
    for word, _, rest in (line.partition(" ") for line in text.splitlines() if line and not line.startswith("#")):
        if word == "RUN":
            subprocess.run(["sh", "-ec", rest], check=True)
        elif word == "COPY" and not rest.startswith("--from"):
            subprocess.run(["ln", "-sT", folder.resolve(), rest.split()[1]], check=True)
        elif word == "ENV":
            pairs = (pair.split("=", 1) for pair in rest.split())
            image["variables"] |= {name: value.replace("$PATH", os.environ["PATH"]) for name, value in pairs}
        elif word in ("ENTRYPOINT", "CMD"):
            image[word] = json.loads(rest)
        elif word == "USER":
            image["user"] = rest
    IMAGE.write_text(json.dumps(image))


def _run(options: list[str]) -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("-d", action="store_true")
    parser.add_argument("--rm", action="store_true")
    parser.add_argument("--name", default="unnamed")
    parser.add_argument("--stop-timeout", type=int, default=10)
    parser.add_argument("-v", action="append", default=[])
    parser.add_argument("-e", action="append", default=[])
    parser.add_argument("image", choices=["litelog"])
    parser.add_argument("command", nargs="*")
    wanted = parser.parse_args(options)
    image = json.loads(IMAGE.read_text())
    variables = image["variables"] | {name: os.environ[name] for name in wanted.e}
    script = ["set -e", *(line for volume in wanted.v for line in _mount(volume))]
    command = [*_as_user(variables), *image["ENTRYPOINT"], *(wanted.command or image["CMD"])]
    script.append(f"exec {shlex.join(command)}")
    start = ["unshare", "--mount", "--propagation", "private", "sh", "-c", "\n".join(script)]
    if not wanted.d:
        sys.exit(subprocess.run(start, check=False, cwd="/").returncode)
    with (PLACE / f"{wanted.name}.log").open("w") as log:
        process = subprocess.Popen(start, cwd="/", stdout=log, stderr=log, start_new_session=True)
    container = {"pid": process.pid, "variables": variables, "stop_timeout": wanted.stop_timeout}
    (PLACE / f"{wanted.name}.json").write_text(json.dumps(container))


def _mount(volume: str) -> list[str]:
    """Commands that mount a folder or file of the machine, or a volume, which is made as its place in the image is."""
    source, target, *read_only = volume.split(":")
    path = Path(source).resolve() if source.startswith((".", "/")) else PLACE / "volumes" / source
    made = [f"mkdir -p {target} {PLACE / 'volumes'}", f"[ -e {path} ] || cp -a {target} {path}"]
    mounted = [f"mount --bind {path} {target}"]
    if path.is_file():
        made, mounted = [f"touch {target}"], [f"mount --bind {path} {target}"]
    return [*made, *mounted, *([f"mount -o remount,bind,ro {target}"] if read_only == ["ro"] else [])]


def _as_user(variables: dict[str, str]) -> list[str]:
    user, group = json.loads(IMAGE.read_text())["user"].split(":")
    return [
        *("setpriv", f"--reuid={user}", f"--regid={group}", "--clear-groups", "--no-new-privs"),
        *("env", "-i", "HOME=/", *(f"{name}={value}" for name, value in variables.items())),
    ]


def _load(name: str) -> dict[str, Any]:
    container: dict[str, Any] = json.loads((PLACE / f"{name}.json").read_text())
    return container


if __name__ == "__main__":
    main(sys.argv[1:])
