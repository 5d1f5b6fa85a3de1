"""The litelog command: one module for each verb."""
