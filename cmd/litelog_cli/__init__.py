"""The litelog command: one module a verb."""
