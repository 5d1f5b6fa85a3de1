"""litelog: replicates append-only logs as they grow, and restores them byte for byte."""
