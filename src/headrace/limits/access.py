"""Bounds of who is let in: users, passwords, addresses."""

from typing import Final

from headrace.limits.units import MIB

USER_NAME_BYTES_MAX: Final = 256
"""Name of a user: as long as a client id that every broker takes, and some."""

PASSWORD_BYTES_MAX: Final = 1024
"""A password, or a token in its place."""

USERS_BYTES_MAX: Final = 64 * MIB
"""File of users, of some 900 bytes each: beyond that they belong into a directory service."""

PASSWORD_THREADS: Final = 2
"""Threads that check passwords (setting `access.password_threads`): each takes 19 MiB and 15 ms of
a core for one, so two let in about a hundred unknown clients a second."""

PASSWORD_QUEUE: Final = 1000
"""Passwords that wait for them (setting `access.password_queue`): what two threads do within the
time that a client waits for CONNACK."""

PASSWORD_CACHE_MS: Final = 600_000
"""How long a password that was checked is known (setting `access.password_cache`): a fleet that
reconnects after a restart of its network is let in at once."""

VERDICTS_MAX: Final = 100_000
"""Passwords that are known, at some 250 bytes each."""

AUTHENTICATION_WAIT_MS_MAX: Final = 60_000
"""Longest wait of an address that keeps failing: 1,440 guesses a day."""

ADDRESSES_MAX: Final = 100_000
"""Addresses of which connects and connections are known, at some 300 bytes each; beyond it the one
seen longest ago is forgotten."""
