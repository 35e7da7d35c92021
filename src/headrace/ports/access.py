"""Who is let in, as ports: what doors ask, and where users are kept."""

from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from headrace.kernel.acls import Acl
from headrace.kernel.credentials import User


class UserStore(Protocol):
    """Where users are kept."""

    def load(self) -> dict[str, User]:
        """Every user by name.

        Raises:
            UsersError: they cannot be read.
        """
        ...

    def change(self, edit: Callable[[dict[str, User]], None]) -> dict[str, User]:
        """Applies a change to the users as they are kept; on return it survives power loss.

        Raises:
            LostWritesError: a sync failed; nothing more may be written.
            UsersError: it cannot be read or written; all is as it was.
        """
        ...


class AclStore(Protocol):
    """Where the ACLs of Kafka's admin clients are kept."""

    def load(self) -> list[Acl]:
        """Every ACL.

        Raises:
            UsersError: they cannot be read.
        """
        ...

    def save(self, acls: Iterable[Acl]) -> None:
        """Replaces them; on return they survive power loss.

        Raises:
            LostWritesError: a sync failed; nothing more may be written.
            UsersError: they cannot be written; the old ones stand.
        """
        ...


class Gatekeeper(Protocol):
    """What the HTTP door asks of who calls, and may ask to be changed."""

    @property
    def is_open(self) -> bool:
        """Whether everybody may do everything, for there are neither users nor rules."""
        ...

    async def authenticate(self, door: str, name: str, password: bytes, host: str | None) -> User:
        """The user, whose password it is.

        Raises:
            AuthenticationError, ThrottledError, BusyError: nobody is let in.
        """
        ...

    def may_publish(self, user: User | None, host: str | None, topic: str) -> bool:
        """Whether a user, or without users anybody, may publish to a topic."""
        ...

    def may_subscribe(self, user: User | None, host: str | None, topic_filter: str) -> bool:
        """Whether a user, or without users anybody, may see all that a filter matches."""
        ...

    def may_read(self, user: User | None, host: str | None, stream: str) -> bool:
        """Whether a user, or without users anybody, may read a stream."""
        ...

    def users(self) -> list[User]:
        """All of them, by name."""
        ...

    async def add(self, name: str, password: bytes | None, roles: Sequence[str]) -> None:
        """Adds a user; holds at once, and survives power loss.

        Raises:
            InvalidUserError, UserExistsError, UsersError: nobody is added.
            UnavailableError: a sync failed; the node writes nothing more.
        """
        ...

    async def change(
        self, name: str, password: bytes | None = None, roles: Sequence[str] | None = None
    ) -> None:
        """Sets a password, or roles; what is None stays.

        Raises:
            InvalidUserError, UnknownUserError, UsersError: all is as it was.
            UnavailableError: a sync failed; the node writes nothing more.
        """
        ...

    async def remove(self, name: str) -> None:
        """Removes a user, and ends their connections and sessions.

        Raises:
            UnknownUserError, UserExistsError, UsersError: the user stays.
            UnavailableError: a sync failed; the node writes nothing more.
        """
        ...
