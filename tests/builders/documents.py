"""The documents that people read, and the code blocks in them.

The first word after a fence is the block's language. ``not-run: REASON`` after the language says that no test runs the
block, and why. ``needs: MODULE`` says that a test runs the block if that module is installed. ``on: machine`` says that
a test runs the block as root on a separate machine (``tests/cli/test_systemd_machine.py``). ``recorded: FORMAT/SCENE
at PLACE`` says that a test runs the block on a log that its real writer recorded, as if it lay there.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from tests.builders.installed import is_installed

ROOT = Path(__file__).resolve().parents[2]

DOCUMENTS = {
    path.relative_to(ROOT).as_posix(): path.read_text()
    for path in (ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "etc" / "docs").glob("*.md")))
    if path.exists()
}
"""The documents' text, by path."""

PACKAGE_DOCUMENTS = {
    path.relative_to(ROOT).as_posix(): path.read_text()
    for folder in ("litelog", "cmd", "replica_clients", "tests")
    for path in sorted((ROOT / folder).rglob("*.md"))
}
"""Those for people who change the code, by path. Their Python is parts of modules, so it is not run."""

RUN = ("sh", "yaml", "python")
"""The languages of the blocks that tests run."""

COMMANDS = {"demo": "tests/cli/test_demo.py runs the demo", "test": ".ci/run runs it"}
"""The README's two commands, by the name in the comment above each, and where each is run: both install litelog
first, so no test of the documents runs them."""

_FENCE = re.compile(r"^ *```(\w+)(?: +([^\n]*))?\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)
"""A block in a list is indented."""


@dataclass(frozen=True, slots=True)
class Block:
    """A code block of a document."""

    document: str
    line: int
    heading: str
    """The nearest heading of the second level above it."""

    language: str
    info: str
    """The text after the language, on the same line."""

    text: str

    @property
    def place(self) -> str:
        return f"{self.document}:{self.line}"

    @property
    def reason(self) -> str | None:
        """Why no test runs the block; None if one does."""
        return self.info.removeprefix("not-run:").strip() if self.info.startswith("not-run") else None

    @property
    def missing(self) -> str | None:
        """The module that the block needs, if it is not installed; else None."""
        needed = self.info.removeprefix("needs:").strip() if self.info.startswith("needs:") else None
        return needed if needed is not None and not is_installed(needed) else None

    @property
    def recorded(self) -> tuple[str, str, str] | None:
        """The format and the scene of the recorded log that the block needs, and its place in the block."""
        found = re.fullmatch(r"recorded: (\w+)/(\w+) at (\S+)", self.info)
        return None if found is None else (found[1], found[2], found[3])

    @property
    def on_machine(self) -> bool:
        """Whether the block changes the machine, and so is run on a separate one."""
        return self.info == "on: machine"

    @property
    def uses_spark(self) -> bool:
        return "litelog.spark" in self.text or "litelog spark" in self.text


def blocks_of(document: str) -> list[Block]:
    """All code blocks of a document, in order."""
    text = {**DOCUMENTS, **PACKAGE_DOCUMENTS}[document]
    found = []
    for match in _FENCE.finditer(text):
        before = text[: match.start()]
        info = match[2] or ""
        if (named := re.search(r"<!-- (\w+) command -->\n\Z", before)) is not None:
            info = f"not-run: {COMMANDS[named[1]]}"
        headings = re.findall(r"^## (.*)$", before, re.MULTILINE)
        heading = headings[-1] if headings else ""
        found.append(Block(document, before.count("\n") + 1, heading, match[1], info, match[3]))
    return found


def section(document: str, heading: str) -> str:
    """The text of a document from a heading of any level to the next heading of that level or above."""
    found = re.search(rf"^(#+) {re.escape(heading)}\n(.*?)(?=^#{{1,6}} |\Z)", DOCUMENTS[document], re.M | re.S)
    assert found is not None, f"{document}: no heading {heading!r}"
    return found[2]
