"""What decides: pure machines without I/O, clock, thread or randomness."""
