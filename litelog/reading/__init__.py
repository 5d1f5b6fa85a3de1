"""Code that all readers of a replica share: the choice of a generation, its extent, and the checks of each object."""
