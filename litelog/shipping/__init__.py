"""Shipping one log to one replica: ownership, preparation, puts, and what is kept between runs."""
