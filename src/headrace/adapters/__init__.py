"""The machine: files, sockets, clock, HTTP, metrics export. Performs, never decides."""
