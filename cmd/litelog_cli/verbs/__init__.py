"""The verbs: a module each, with a click command of the same name."""
