"""Bytes: checksums, LZ4 frames, columns of integers, and JSON that may hold anything. No I/O."""
