"""Ships one log to one replica: ownership, encoding, puts, and the state that is kept between runs."""
