"""Verifies a replica: checks every promise of its writers, reports every anomaly, and changes nothing."""
