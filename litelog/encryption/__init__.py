"""Encryption of a replica's objects: recipients, identities, keys, and the bytes of an encrypted object.

Specified in litelog/encryption/README.md.
"""
