"""The version of litelog. Nothing else states it: the build reads this file."""

VERSION = "0.1.0"
