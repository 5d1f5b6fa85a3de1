"""Retention: plans which objects of a replica are deleted, and deletes them in order."""
