"""A batch read: the plan of the driver, and the reads of a task."""
