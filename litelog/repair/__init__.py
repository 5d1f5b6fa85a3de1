"""Repairs the files of a log on local disk: damaged places from a replica, and a torn tail by cutting it off."""
