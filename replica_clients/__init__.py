"""Backends for destinations: one ObjectStore per module, found through entry points by URL scheme."""
