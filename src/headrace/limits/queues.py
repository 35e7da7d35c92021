"""Bounds of queues, and what holds for one that does not say otherwise."""

from typing import Final

from headrace.limits.units import DAY_MS

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
