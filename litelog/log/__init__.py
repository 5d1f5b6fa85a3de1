"""Logs on local disk: writes, reads, follows and truncates them."""
