"""Object stores and replica clients: the interface to backends, and the wrappers that retry, measure and limit."""
