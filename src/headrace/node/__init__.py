"""One broker: its lifetime, its partitions, its connections, and one ordered effect runner."""
