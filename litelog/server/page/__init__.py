"""The page that people see: all logs and replicas, most severe first."""
