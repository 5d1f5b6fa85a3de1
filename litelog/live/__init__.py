"""Live reading: what a daemon gives to other processes as its logs grow."""
