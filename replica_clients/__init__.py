"""Drivers for destinations: one ObjectStore a module, found by entry points by URL scheme."""
