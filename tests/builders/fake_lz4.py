"""Executes ``lz4 -dc`` where the command is not installed: decodes all frames of its standard input."""

from __future__ import annotations

import sys

import lz4.frame


def main(arguments: list[str]) -> None:
    assert arguments == ["-dc"], arguments
    left = sys.stdin.buffer.read()
    while left:
        frame = lz4.frame.LZ4FrameDecompressor()
        sys.stdout.buffer.write(frame.decompress(left))
        left = frame.unused_data or b""


if __name__ == "__main__":
    main(sys.argv[1:])
