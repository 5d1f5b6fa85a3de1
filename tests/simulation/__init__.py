"""A deterministic simulation: daemons, writers, readers and stores in one process, under one clock and one seed."""
