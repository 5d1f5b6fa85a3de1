"""Named consumers of a log: each has a durable position, from which it continues after a restart.

Programs write ``from litelog import Consumer``.
"""
