"""What the sender of a request may do to what it asks about, for clients that ask (KIP-430).

Told as Kafka's operations, of which an access rule knows three: the others are what an admin does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from headrace.kernel.credentials import ADMIN
from headrace.node.kafka import guard
from headrace.node.kafka.pace import paced
from headrace.wire.kafka import apis

if TYPE_CHECKING:
    from collections.abc import Iterable

    from headrace.node.access import Gate
    from headrace.node.kafka.guard import Caller
    from headrace.wire.kafka.frames import Request

READ: Final = 3
WRITE: Final = 4
CREATE: Final = 5
DELETE: Final = 6
ALTER: Final = 7
DESCRIBE: Final = 8
DESCRIBE_CONFIGS: Final = 10
ALTER_CONFIGS: Final = 11
IDEMPOTENT_WRITE: Final = 12
"""Operations (`AclOperation`)."""

_OF_TOPIC: Final = {
    READ: "read", WRITE: "write", DESCRIBE: "describe", DESCRIBE_CONFIGS: "describe",
    CREATE: ADMIN, DELETE: ADMIN, ALTER: ADMIN, ALTER_CONFIGS: ADMIN,
}  # fmt: skip
_OF_GROUP: Final = {READ: "read", DESCRIBE: "describe", DELETE: ADMIN}
_OF_ALL: Final = (IDEMPOTENT_WRITE,)
_OF_CLUSTER: Final = (*_OF_ALL, CREATE, ALTER, DESCRIBE, DESCRIBE_CONFIGS)
"""What each needs: an action of the rules, or the role `admin`."""


async def tell(
    gate: Gate,
    by: Caller | None,
    request: Request,
    body: Any,  # noqa: ANN401
) -> None:
    """Adds to a response what its request asks for; `by` is None where everybody may everything."""
    asked = request.body
    if getattr(asked, "include_cluster_authorized_operations", False):
        is_admin = by is None or by.is_admin
        body.cluster_authorized_operations = _bits(_OF_CLUSTER if is_admin else _OF_ALL)
    if getattr(asked, "include_topic_authorized_operations", False):
        async for topic in paced(body.topics):
            if not topic.error_code:
                topic.topic_authorized_operations = _of_topic(gate, by, request, topic.name)
    if request.api is apis.DESCRIBE_GROUPS and asked.include_authorized_operations:
        async for group in paced(body.groups):
            if not group.error_code:
                group.authorized_operations = _of_group(gate, by, request, group.group_id)


def _of_topic(gate: Gate, by: Caller | None, request: Request, name: str) -> int:
    if by is None:
        return _bits(_OF_TOPIC)
    actions = ("read", "write", "describe")
    may = {action: guard.may(gate, by, request, action, name) for action in actions}
    return _bits(each for each, action in _OF_TOPIC.items() if may.get(action, by.is_admin))


def _of_group(gate: Gate, by: Caller | None, request: Request, name: str) -> int:
    if by is None:
        return _bits(_OF_GROUP)
    actions = ("read", "describe")
    may = {action: guard.may_group(gate, by, request, action, name) for action in actions}
    return _bits(each for each, action in _OF_GROUP.items() if may.get(action, by.is_admin))


def _bits(numbers: Iterable[int]) -> int:
    return sum(1 << number for number in numbers)
