"""Reads the side files of a log: what its format captures with each snapshot, next to the log segments."""

from __future__ import annotations

import logging
import os
from typing import TYPE_CHECKING

from litelog.errors import SourceError, SourceMissingError
from litelog.events import fields
from litelog.formats.capabilities import has_side_files, side_files
from litelog.objects.side_files import MAX_SIDE_FILE_BYTES, MAX_SIDE_FILES, SideFile
from litelog.system.files import read_regular

if TYPE_CHECKING:
    from collections.abc import Iterator

    from litelog.formats import LogFormat

_logger = logging.getLogger(__name__)


def read_side_files(folder: str, log_format: LogFormat) -> tuple[SideFile, ...]:
    """Read the side files of the log in ``folder``. A file that is too large or not regular is skipped with a warning:
    log segments do not depend on it.

    Raises:
        SourceMissingError: The folder does not exist.
        SourceError: It cannot be listed.
    """
    if not has_side_files(log_format):
        return ()
    try:
        names = os.listdir(folder)
    except (FileNotFoundError, NotADirectoryError) as error:
        raise SourceMissingError(folder, "no such folder") from error
    except OSError as error:
        raise SourceError(f"{folder}: cannot be listed: {error.strerror}") from error
    return tuple(_read(folder, side_files(log_format, names)))


def _read(folder: str, names: list[str]) -> Iterator[SideFile]:
    for number, name in enumerate(names):
        reason = f"more than {MAX_SIDE_FILES} side files"
        if number < MAX_SIDE_FILES:
            try:
                yield SideFile(name, read_regular(os.path.join(folder, name), MAX_SIDE_FILE_BYTES, flags=os.O_NOFOLLOW))
                continue
            except FileNotFoundError:
                continue  # its writer has just removed it
            except OSError as error:
                reason = error.strerror or str(error)
        message = "%s: side file %s is not replicated: %s"
        extra = fields("side-file-skipped", log=folder, file=name)
        _logger.warning(message, folder, name, reason, extra=extra)
