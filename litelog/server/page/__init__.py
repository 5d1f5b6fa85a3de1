"""The page for people: all logs and replicas, most severe first."""
