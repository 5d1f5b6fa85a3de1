"""A batch read: what the driver plans, and what a task reads."""
