"""What a replica is made of: the names and the bytes of its objects. No I/O, no clock."""
