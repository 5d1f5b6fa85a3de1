"""Journals of Gazette, read from the fragments that its brokers persist."""
