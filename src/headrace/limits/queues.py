"""Bounds of queues, and what holds for one that does not say otherwise."""

from typing import Final

from headrace.limits.units import DAY_MS, KIB, MIB

QUEUE_ACK_DEADLINE_MS: Final = 30_000
"""From a delivery to the next one (`ack.deadline.ms`), as SQS has it: work that takes longer says
so by `$extend`, and of a consumer that hangs the messages come to another within half a minute."""

QUEUE_BATCH_SIZE: Final = 500
"""As the design that queues began with: a turn of half a millisecond."""

QUEUE_GROUPS_MAX: Final = 10_000
"""Half a kilobyte for each partition of each, and a client id that is another each time leaves one
behind with each."""

QUEUE_LETTER_BYTES: Final = 256 * 1024
"""What a dead letter may say of itself beside the message: a reason, a topic, and short texts."""

QUEUE_MESSAGE_TTL_MS: Final = 7 * DAY_MS
"""Age at which a message is dead (`message.ttl.ms`), as long as a stream keeps records."""

QUEUE_PREFETCH: Final = 100
"""Deliveries that a consumer may have open (`prefetch`): a round trip of 10 ms then costs none its
10,000 messages a second, and what one that dies held is soon done by others."""

QUEUE_READ_AHEAD: Final = 1_000
"""Messages that are known and wait, of a group and a partition (`read.ahead`)."""

QUEUE_READ_AHEAD_MAX: Final = 1_000_000
"""Each that waits takes about 100 bytes."""

QUEUE_RETRY_ATTEMPTS: Final = 10
"""Failures until a message is dead (`retry.attempts`): with the back-offs below, half an hour."""

QUEUE_RETRY_ATTEMPTS_MAX: Final = 2**31 - 1
"""What a counter of 32 bits holds."""

QUEUE_RETRY_BACKOFF_MS: Final = 1_000
"""The first back-off (CONTRACT)."""

QUEUE_RETRY_BACKOFF_MAX_MS: Final = 300_000
"""The longest back-off: what was down is asked again within five minutes of its return."""

QUEUE_PULL_MESSAGES: Final = 10
"""Of a pull that does not say how many, as much work as one process begins at a time."""

QUEUE_PULL_MESSAGES_MAX: Final = 1_000
"""Of a pull, an enqueue or a settlement over HTTP: some milliseconds of the loop."""

QUEUE_PULL_BYTES: Final = MIB
"""Of the messages of one pull, and one message more: those of all pulls that wait to be written
then stay below 300 MiB."""

QUEUE_PULL_WAIT_MS_MAX: Final = 60_000
"""For a message, as long as proxies leave a request alone by default (nginx: `proxy_read_timeout`);
who wants to wait longer pulls again."""

QUEUE_PULL_LOOK_SECONDS: Final = 1.0
"""Beyond that, for what is on its way from the disk."""

QUEUE_PULLS_MAX: Final = 96
"""Pulls that wait: three quarters of the connections of the HTTP door, so that others have room."""

QUEUE_PEEK_BYTES: Final = 256 * KIB
"""Of one read of a look, some milliseconds to go through."""

QUEUE_PEEK_READS: Final = 64
"""Of one look, which so ends among messages that are settled, and says where it was."""

QUEUE_DEADLINE_MS_MAX: Final = 365 * DAY_MS
"""Of a pull: longer ones are mistakes."""
