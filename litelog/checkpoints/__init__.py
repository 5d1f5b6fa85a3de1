"""Checkpoints of replicas: made of what a replica holds, signed, and compared with what it holds later."""
