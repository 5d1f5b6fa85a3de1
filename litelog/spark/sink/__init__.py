"""Writes a DataFrame as one generation of a replica."""
