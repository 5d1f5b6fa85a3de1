"""A batch that is written as one generation of a replica."""
