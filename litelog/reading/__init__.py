"""What every reader of a replica shares: which generation, how far, and what each object must say."""
