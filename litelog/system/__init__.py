"""The machine: clock, files, notifications of changes. Nothing here knows of logs or replicas."""
