"""Steps that change the log itself, as a person or its writer may do. Each ends the writer and starts it again."""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING

from litelog.log.sparse_index import index_path
from tests.simulation.truth import end_of_commits

if TYPE_CHECKING:
    from tests.simulation.world import World

WRITER_SECONDS = 1.0
"""Seconds between a change and the restart of the writer."""


class LogChanges:
    """The changes of one world. Steps of a plan are its methods."""

    def __init__(self, world: World, catching_up: float) -> None:
        """``catching_up``: seconds after a change within which everything is shipped."""
        self._world = world
        self._catching_up = catching_up
        self._away = os.path.join(world.desk.root, "taken-away")

    def replace_log(self) -> None:
        """A copy with all that the log has ever held replaces the log's folder. The writer continues after it."""
        world = self._world
        if world.room.full:
            return
        world.end_writer()
        world.oracle.truth.read_all()
        copy = f"{world.log}.copy"
        shutil.copytree(world.log, copy)
        for name, body in world.oracle.truth.files.items():
            with open(os.path.join(copy, name), "wb") as file:
                file.write(body)
        os.rename(world.log, f"{world.log}.before")
        os.rename(copy, world.log)
        shutil.rmtree(f"{world.log}.before")
        world.oracle.log_replaced(world.scheduler.now + self._catching_up)
        self._changed("fault: log replaced")
        world.scheduler.after(WRITER_SECONDS, world.begin_writer)

    def rewind_log(self, segments: int) -> None:
        """An older state replaces the log: it lacks the newest log segments and half of the one before. Its writer
        continues there, with other commits under the same names."""
        world = self._world
        names = self._end_and_list()
        if len(names) <= segments:
            world.begin_writer()
            return
        for name in names[len(names) - segments :]:
            self._remove(name)
        path = os.path.join(world.log, names[len(names) - segments - 1])
        with open(path, "rb") as file:
            body = file.read()
        os.truncate(path, end_of_commits(names[len(names) - segments - 1], body[: len(body) // 2]))
        self._rewound("fault: log rewound")
        world.scheduler.after(WRITER_SECONDS, world.begin_writer)

    def take_segments_away(self, segments: int) -> None:
        """Move the newest log segments to another place. The writer does not write until they are back."""
        world = self._world
        names = self._end_and_list()
        if len(names) <= segments or os.path.exists(self._away):
            world.begin_writer()
            return
        os.mkdir(self._away)
        for name in names[len(names) - segments :]:
            shutil.copyfile(os.path.join(world.log, name), os.path.join(self._away, name))
            self._remove(name)
        self._rewound("fault: log segments taken away")

    def bring_segments_back(self) -> None:
        """Move the log segments back to their place."""
        world = self._world
        if os.path.exists(self._away):
            for name in sorted(os.listdir(self._away)):
                shutil.copyfile(os.path.join(self._away, name), os.path.join(world.log, name))
            shutil.rmtree(self._away)
            self._rewound("log segments are back")
            world.begin_writer()

    def _end_and_list(self) -> list[str]:
        self._world.end_writer()
        truth = self._world.oracle.truth
        truth.read_all()
        return sorted(truth.here())

    def _remove(self, name: str) -> None:
        path = os.path.join(self._world.log, name)
        os.unlink(path)
        if os.path.exists(index_path(path)):
            os.unlink(index_path(path))

    def _rewound(self, what: str) -> None:
        self._world.written = 0  # the writer finds the end itself
        self._world.oracle.rewound()
        self._changed(what)

    def _changed(self, what: str) -> None:
        world = self._world
        world.counts[what] += 1
        world.disks.make_durable(world.room, world.log)
        world.changed(world.log)
