"""The verbs. Each is a module with a click command of the same name."""
