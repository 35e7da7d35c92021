"""ACLs of Kafka's admin clients as access rules: what of them a rule can say, and in which order.

Pure. An ACL is about a topic or a consumer group, by name or by how names begin, a user and a host.
The rules of the configuration stand before all ACLs; of these, those that deny stand before those
that allow, for Kafka asks them so. Where nothing else holds what no rule is about is denied
(`access.no_match`); where that is "allow", a resource with ACLs is closed to all others, which is
Kafka's `allow.everyone.if.no.acl.found=true`.

Must not know requests, files or who asks.
"""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, Final, NamedTuple

from headrace.errors import InvalidAclError
from headrace.text import shown

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

ANY: Final = 1
"""Of each kind of number: whichever, in a filter."""


class Resource(IntEnum):
    """What an ACL is about (`ResourceType`)."""

    TOPIC = 2
    GROUP = 3


class Pattern(IntEnum):
    """How a resource is named (`PatternType`)."""

    LITERAL = 3
    PREFIXED = 4


MATCH: Final = 2
"""Of a filter: whatever is about a resource of that name."""


class Operation(IntEnum):
    """What one may do (`AclOperation`), as far as rules know it."""

    ALL = 2
    READ = 3
    WRITE = 4
    DESCRIBE = 8


class Permission(IntEnum):
    """Whether one may (`AclPermissionType`)."""

    DENY = 2
    ALLOW = 3


_OTHER_OPERATIONS: Final = {
    5: "create", 6: "delete", 7: "alter", 9: "cluster action", 10: "describe configs",
    11: "alter configs", 12: "idempotent write", 13: "create tokens", 14: "describe tokens",
    15: "two phase commit",
}  # fmt: skip
_OTHER_RESOURCES: Final = {4: "cluster", 5: "transactional id", 6: "delegation token", 7: "user"}

_USER: Final = "User:"
EVERYBODY: Final = "*"
"""As a user, a host, or the name of a resource."""

_ACTIONS: Final = {
    Resource.TOPIC: ("read", "write", "describe"),
    Resource.GROUP: ("read", "describe"),
}


class Part(NamedTuple):
    """One rule: what `AccessRules.add` takes, and how a person reads it."""

    allows: bool
    actions: tuple[str, ...]
    user: str | None
    host: str | None
    resource: Resource
    name: str
    text: str


@dataclass(frozen=True, slots=True, order=True)
class Acl:
    """One ACL.

    Attributes:
        name: of the resource, or what its name begins with; `*` for all.
        user, host: `*` for everybody.
    """

    resource: Resource
    pattern: Pattern
    name: str
    user: str
    host: str
    operation: Operation
    permission: Permission

    @property
    def principal(self) -> str:
        """The user as Kafka writes it."""
        return _USER + self.user

    @property
    def names(self) -> str:
        """The resource as a rule writes it."""
        return self.name + EVERYBODY if self.pattern is Pattern.PREFIXED else self.name

    @property
    def actions(self) -> tuple[str, ...]:
        """What the rule is about: who may read or write may describe, too."""
        if self.operation is Operation.ALL:
            return _ACTIONS[self.resource]
        action = self.operation.name.lower()
        implied = self.permission is Permission.ALLOW and self.operation is not Operation.DESCRIBE
        return (action, "describe") if implied else (action,)

    def __str__(self) -> str:
        verb = self.permission.name.lower()
        return (
            f"{verb} {self.principal} {self.operation.name.lower()} of "
            f"{self.resource.name.lower()} {self.names}"
        )


def checked(
    resource: int,
    pattern: int,
    name: str,
    principal: str,
    host: str,
    operation: int,
    permission: int,
) -> Acl:
    """The ACL of Kafka's numbers and names.

    Raises:
        InvalidAclError: no rule says the same.
    """
    _check_kinds(resource, pattern, operation, permission)
    user = principal.removeprefix(_USER)
    if not principal.startswith(_USER) or not user:
        raise InvalidAclError(f"a principal is User:NAME or User:*; got {shown(principal)}")
    _check_names(user, name, host, is_prefix=pattern == Pattern.PREFIXED)
    return Acl(
        Resource(resource),
        Pattern(pattern),
        name,
        user,
        host,
        Operation(operation),
        Permission(permission),
    )


def _check_kinds(resource: int, pattern: int, operation: int, permission: int) -> None:
    if resource not in list(Resource):
        kind = _OTHER_RESOURCES.get(resource, f"resource {resource}")
        raise InvalidAclError(
            f"ACLs are about topics and groups here, not about a {kind}; what changes streams "
            f"needs the role admin"
        )
    if operation not in list(Operation):
        asked = _OTHER_OPERATIONS.get(operation, f"operation {operation}")
        raise InvalidAclError(
            f"an ACL allows or denies read, write, describe or all; {asked} is what users with "
            f"the role admin may do"
        )
    if (resource, operation) == (Resource.GROUP, Operation.WRITE):
        raise InvalidAclError("a group is read or described; nobody writes to it")
    if pattern not in list(Pattern) or permission not in list(Permission):
        raise InvalidAclError("an ACL has one pattern, literal or prefixed, and allows or denies")


def _check_names(user: str, name: str, host: str, *, is_prefix: bool) -> None:
    for what, text in (("a user", user), ("a resource", name)):
        if text != EVERYBODY and (EVERYBODY in text or "{" in text or "}" in text or not text):
            raise InvalidAclError(
                f"{what} is named without * and braces, or is * alone; got {shown(text)}"
            )
    if is_prefix and name == EVERYBODY:
        raise InvalidAclError("a prefix is the beginning of names; for all name * literally")
    if host != EVERYBODY:
        try:
            ipaddress.ip_address(host)
        except ValueError:
            raise InvalidAclError(f"a host is an IP address or *; got {shown(host)}") from None


class Filter(NamedTuple):
    """Some ACLs, in Kafka's numbers; None and `ANY` stand for whichever."""

    resource: int = ANY
    pattern: int = ANY
    name: str | None = None
    principal: str | None = None
    host: str | None = None
    operation: int = ANY
    permission: int = ANY

    def is_about(self, acl: Acl) -> bool:
        """Whether it is one of them."""
        return (
            self.resource in {ANY, acl.resource}
            and self._names(acl)
            and self.principal in {None, acl.principal}
            and self.host in {None, acl.host}
            and self.operation in {ANY, acl.operation}
            and self.permission in {ANY, acl.permission}
        )

    def _names(self, acl: Acl) -> bool:
        if self.pattern == MATCH and self.name is not None:
            if acl.pattern is Pattern.PREFIXED:
                return self.name.startswith(acl.name)
            return acl.name in {self.name, EVERYBODY}
        return self.pattern in {ANY, MATCH, acl.pattern} and self.name in {None, acl.name}


def checked_filter(asked: Filter) -> Filter:
    """A filter that makes sense.

    Raises:
        InvalidAclError: a number of it is none of Kafka's.
    """
    numbers = (asked.resource, asked.pattern, asked.operation, asked.permission)
    if min(numbers) < ANY or asked.pattern > max(Pattern) or asked.permission > max(Permission):
        raise InvalidAclError("a filter names kinds that there are, or any")
    return asked


def parts(acls: Collection[Acl], *, allows_unmatched: bool) -> Iterator[Part]:
    """The rules that ACLs come to, in their order."""
    ordered = sorted(acls)
    for permission in (Permission.DENY, Permission.ALLOW):
        for acl in ordered:
            if acl.permission is permission:
                yield _part(acl)
    if allows_unmatched:
        yield from _closed(ordered)


def _part(acl: Acl) -> Part:
    return Part(
        allows=acl.permission is Permission.ALLOW,
        actions=acl.actions,
        user=None if acl.user == EVERYBODY else acl.user,
        host=None if acl.host == EVERYBODY else acl.host,
        resource=acl.resource,
        name=acl.names,
        text=str(acl),
    )


def _closed(acls: Iterable[Acl]) -> Iterator[Part]:
    """Denies to all others what ACLs are about."""
    for resource, name in dict.fromkeys((acl.resource, acl.names) for acl in acls):
        kind = resource.name.lower()
        text = f"deny the others {kind} {name}, which has ACLs"
        yield Part(
            allows=False,
            actions=_ACTIONS[resource],
            user=None,
            host=None,
            resource=resource,
            name=name,
            text=text,
        )
