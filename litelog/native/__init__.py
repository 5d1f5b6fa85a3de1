"""The compiled part of litelog, which is optional: what has to take one step after the other in a buffer."""
