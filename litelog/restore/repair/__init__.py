"""Repair of a damaged replica during a restore, with the bytes of other replicas."""
