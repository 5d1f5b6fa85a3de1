"""The objects of a replica: their names and their bytes. No I/O, no clock."""
