"""Bounds of connections, on every door: accepting, handshakes, buffers, descriptors."""

from typing import Final

from headrace.limits.units import KIB

CONNECTIONS_MAX: Final = 1_000_000
"""Connections of all doors but HTTP together (setting `limits.connections`); what the
descriptors leave is usually less and is printed at start."""

LISTEN_BACKLOG: Final = 4096
"""Accept queue. 100 entries turn a reconnect storm into SYN retries of a second each; the kernel
caps it at `net.core.somaxconn`, whose default is 4,096."""

ACCEPTS_AT_ONCE: Final = 64
"""Connections accepted in one loop iteration, about 1 ms of work: in a storm of connects, those who
are connected are served in between."""

ACCEPT_PAUSE_SECONDS: Final = 0.1
"""How long nothing is accepted after an accept has failed, as for want of descriptors."""

HANDSHAKE_MS: Final = 10_000
"""From accept until a PROXY header, TLS and WebSocket are through, together."""

HANDSHAKES_MAX: Final = 1000
"""Connections of one listener that are on that way. A handshake takes 1 to 3 ms of the loop, and
each holds what TLS needs for it."""

UPGRADE_BYTES_MAX: Final = 32 * KIB
"""Request to upgrade to WebSocket: four times what browsers send with large cookies, of clients
that nobody knows yet."""

FRAME_SHARE_BYTES: Final = 64 * KIB
"""What a connection may hold of a WebSocket frame that is not whole and counts as little: it gives
way only to others that hold little (`kernel/holdings.py`). Beyond `BUFFERED_BYTES_MAX` the oldest
is ended."""

REFUSAL_LOG_SECONDS: Final = 1.0
"""Least time between two lines of log about connections that a listener refused for one reason."""

TLS_PIECE_BYTES: Final = 16 * KIB
"""The largest TLS record (RFC 8446 5.1): deciphered and enciphered at a time, so that no connection
keeps larger buffers."""

CERTIFICATE_WARN_DAYS: Final = 7
"""Left of a certificate when the log warns of its end: what renews by itself does so with a third
of its life left, a month of the usual ninety days."""

PROXY_HEADER_BYTES_MAX: Final = 4096
"""PROXY header of version 2 with its extensions; those that are known take a few hundred bytes."""

WRITE_CREDIT_BYTES: Final = 64 * KIB
"""Given to the transport for one connection in one loop iteration: at 10,000 iterations a second it
is more than one connection can take. With `WRITE_HIGH_BYTES` it is what the transport may hold of a
client that reads nothing, beside `BUFFERED_BYTES_MAX`."""

WRITE_HIGH_BYTES: Final = 64 * KIB
"""Transport buffer at which a connection gets no more credit."""

WRITE_LOW_BYTES: Final = 16 * KIB
"""Transport buffer at which credit returns."""

SOCKET_UNSENT_BYTES: Final = 128 * KIB
"""In the kernel for one connection, beyond what is on its way on the network (`TCP_NOTSENT_LOWAT`):
of 4 MiB each (`net.ipv4.tcp_wmem`), a thousand clients that read nothing would take all of the
memory that the kernel has for TCP (`net.ipv4.tcp_mem`), from everybody on the machine."""

LINGER_SECONDS: Final = 2.0
"""How long a closed connection may take to read its last bytes before it is reset; also what a
client that ignores them may add to an orderly stop."""

DESCRIPTORS_RESERVED: Final = 256
"""Files that are neither connections nor partitions: journal, lock, listeners, HTTP, libraries, and
64 segments that are being read."""

PARTITION_DESCRIPTORS: Final = 4
"""Files that one partition holds open: its active segment, and three of what rolls have finished
and nobody has synced yet. Rolls of a log engine that holds more wait (`log::chore` in Rust)."""
