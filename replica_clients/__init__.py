"""Backends for destinations. Each is an ObjectStore, which litelog finds through entry points, by URL scheme."""
