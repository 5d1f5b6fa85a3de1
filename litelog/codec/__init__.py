"""Bytes: checksums, LZ4 frames, columns of integers, and untrusted JSON. No I/O."""
