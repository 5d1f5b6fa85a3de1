"""Restores a log from a replica: the plan as a value, and its execution."""
