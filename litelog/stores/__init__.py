"""Where objects are kept: the seam to backends, and the wrappers that retry, measure and limit."""
