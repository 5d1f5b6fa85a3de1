"""Streams: follows replicas batch by batch."""
