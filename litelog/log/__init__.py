"""Logs on local disk: written, read and followed."""
