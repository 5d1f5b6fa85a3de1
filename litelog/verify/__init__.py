"""Verifying a replica: every promise of its writers checked, every anomaly named, nothing changed."""
