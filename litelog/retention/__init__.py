"""Retention: what a replica may lose. A pure plan, the facts that it is made from, and the deletions in their order."""
