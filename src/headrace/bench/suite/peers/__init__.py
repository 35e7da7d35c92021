"""Brokers that a suite can start: found by their binaries or jars, each on a folder of its own."""
