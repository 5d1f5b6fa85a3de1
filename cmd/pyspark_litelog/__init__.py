"""What Spark finds by itself: the data source ``litelog``."""
