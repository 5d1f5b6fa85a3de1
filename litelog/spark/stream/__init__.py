"""A stream: a replica that is followed batch by batch."""
