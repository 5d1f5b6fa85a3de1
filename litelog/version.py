"""The version of litelog. It stands only here: the build reads it from this file."""

VERSION = "0.1.0"
