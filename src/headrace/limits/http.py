"""Bounds of the HTTP door."""

from typing import Final

from headrace.limits.units import KIB, MIB

HTTP_BODY_BYTES_MAX: Final = 2 * MIB
"""Request body: a publish of `PACKET_BYTES_MAX` in base64 with its JSON around it."""

HTTP_LINE_BYTES_MAX: Final = 200 * KIB
"""Line of a request: a path with the longest client id or topic, 65,535 bytes, each as `%XX`."""

HTTP_CONNECTIONS_MAX: Final = 128
"""Connections of the HTTP door; beyond it the one that has been idle for longest is ended, or else
that has read nothing for longest, and a new one closed where all are at work. Administration needs
few, and they come out of `DESCRIPTORS_RESERVED`."""

HTTP_ACCEPT_PAUSE_SECONDS: Final = 1
"""Before the next accept where one failed, as without descriptors (asyncio: the same)."""

HTTP_REQUEST_MS: Final = 30_000
"""From accept to a whole first request, and from its head to the end of its body: who does not go
on would otherwise stay for as long as nobody else needs its place."""

HTTP_IDLE_MS: Final = 60_000
"""From an answer to the next request: longer than Prometheus waits between two by default (15 s) or
as a rule (up to 60 s), and short for who has gone without a word (nginx: 75 s). Without reading
anything of an answer, too (nginx: `send_timeout`, 60 s)."""

HTTP_IDLE_MS_CEILING: Final = 3_600_000

HTTP_PUBLISHED_AT_ONCE: Final = 32
"""Messages of one request that wait for the disk together: one round for as many costs each little,
and they are begun within a millisecond."""

HTTP_PUBLISHES_MAX: Final = 2 * HTTP_CONNECTIONS_MAX * HTTP_PUBLISHED_AT_ONCE
"""Publishes over HTTP that may wait for the disk, their requesters gone or not; further ones are
refused. Twice what the connections can have, so that only who hangs up and comes back ever meets
it."""

HTTP_PUBLISHES_BYTES_MAX: Final = 2 * HTTP_CONNECTIONS_MAX * HTTP_BODY_BYTES_MAX
"""Payloads of those, for the same reason."""

HTTP_PAGE: Final = 100
"""Sessions or retained messages in an answer that asks for no number of its own."""

HTTP_PAGE_MAX: Final = 1_000
"""Those that one may ask for: about 300 KB of JSON and 5 ms of the loop."""

HTTP_EXCERPT_BYTES_MAX: Final = 1_024
"""Of each payload that a list of retained messages shows; one message alone is shown whole."""

TRACE_SECONDS_MAX: Final = 3_600
"""For a live trace: one that was forgotten ends."""

TRACE_PAYLOAD_BYTES_MAX: Final = 4_096
"""Of each payload in a live trace: its beginning tells what it is."""

TRACE_POLL_MS: Final = 100
"""Between two looks at what a trace has seen: live for a person, cheap for the node."""

TRACE_BEAT_SECONDS: Final = 10
"""Silence of a trace after which an empty line shows that it stands."""

HTTP_PROXIED_CONNECTIONS: Final = 16
"""To the process that answers about telemetry, which computes on this machine's cores: more at a
time would only wait there."""

HTTP_PROXIED_CONNECT_SECONDS: Final = 2

HTTP_PROXIED_SECONDS: Final = 30
"""Of an answer about telemetry to its last byte: as long as a request may take."""

HTTP_PROXIED_PIECE_BYTES: Final = 64 * KIB
"""Held of such an answer for each client, as much as the door writes at a time."""

HTTP_PROXIED_BYTES_MAX: Final = 64 * MIB
"""Of such an answer: its largest page has 10,000 rows of 300 bytes."""
