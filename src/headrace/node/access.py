"""Who is let in: users, passwords that are checked beside the loop, and what is known of them.

Owns the users of a running node and the one place where a password is checked, whichever door it
came through. Must not know protocols: doors say what a refusal looks like. Invariants: no more than
`password_queue` passwords wait; nothing of an address is checked while it must wait; a change holds
for connections that are open, and is durable before it is answered.
"""

from __future__ import annotations

import asyncio
import secrets
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Final, TypeVar

from headrace.errors import (
    AuthenticationError,
    BusyError,
    InvalidAclError,
    LostWritesError,
    ThrottledError,
    UnavailableError,
    UsersError,
)
from headrace.kernel import credentials, users
from headrace.kernel.acls import Resource, parts
from headrace.kernel.scram import Exchange
from headrace.kernel.verdicts import Failures, Verdicts
from headrace.native import Principal
from headrace.node.changes import Changes
from headrace.ports import Sample

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from headrace.config import AccessSettings
    from headrace.kernel.acls import Acl, Part
    from headrace.kernel.credentials import ScramKeys, User
    from headrace.native import AccessRules, Switchboard
    from headrace.ports import AclStore, Clock, UserStore

T = TypeVar("T")
W = TypeVar("W")

WRONG: Final = "user name or password is wrong"

REASONS: Final = {AuthenticationError: "wrong", ThrottledError: "throttled", BusyError: "busy"}
"""Labels of the counter of refusals."""


class Gate:
    """The gate of all doors (`ports.Gatekeeper`).

    Attributes:
        switchboard: holds MQTT clients to what is said here.
        settings, rules: as they are now; what ACLs come to stands behind the settings' own rules.
        acls: those of Kafka's admin clients.
        refused: clients that were not let in, by door and reason.
        on_change: called when others may be in than before.
        on_lost: called with the reason where a sync failed.
        ended: why the node writes nothing more, or None.
    """

    def __init__(
        self,
        store: UserStore,
        acl_store: AclStore,
        settings: AccessSettings,
        clock: Clock,
        switchboard: Switchboard,
        *,
        may_open: bool = True,
    ) -> None:
        """Reads the users.

        `may_open` says whether everybody may do everything where there are neither users nor rules.

        Raises:
            UsersError: they cannot be read.
        """
        self._store = store
        self._acl_store = acl_store
        self._may_open = may_open
        self._clock = clock
        self.switchboard = switchboard
        self._secret = secrets.token_bytes(32)
        self._verdicts = Verdicts(self._secret, settings.password_cache)
        self._failures = Failures()
        self._checkers = ThreadPoolExecutor(settings.password_threads, "passwords")
        self._checking: dict[bytes, asyncio.Future[bool]] = {}
        self._checked = 0
        self._changes = Changes()
        self.refused: Counter[tuple[str, str]] = Counter()
        self.on_change: Callable[[], None] = lambda: None
        self.on_lost: Callable[[str], None] = lambda _reason: None
        self.ended: str | None = None
        self._users: Mapping[str, User] = store.load()
        self.acls: list[Acl] = acl_store.load()
        self.settings = settings
        self.rules = compiled(settings, self.acls)
        self.hold()

    @property
    def is_open(self) -> bool:
        """Whether everybody may do everything, for there are neither users nor rules."""
        return not self._users and not len(self.rules)

    def get(self, name: str) -> User | None:
        """The user of a name."""
        return self._users.get(name)

    def reload(self, settings: AccessSettings) -> None:
        """Takes rules and users as they are now; for connections that are open, too.

        Raises:
            UsersError: users cannot be read, or it would be open and may not; nothing changes.
        """
        known, acls = self._store.load(), self._acl_store.load()
        rules = compiled(settings, acls)
        if not (known or len(rules) or self._may_open):
            raise UsersError("without users and rules the node would be open to everybody")
        self._take(known)
        self.settings, self.acls, self.rules = settings, acls, rules
        self.hold()

    def hold(self) -> None:
        """Holds everybody who is connected to what is said now."""
        self.switchboard.control(
            None if self.is_open else self.rules,
            {name: list(user.roles) for name, user in self._users.items()},
            self._clock.mono_ms(),
            self._clock.wall_ms(),
            anonymous=self.settings.anonymous,
            certified=self.settings.certificates == "any",
            closes=self.settings.denied_publish == "disconnect",
            silent=not self.settings.reveal_refusals,
        )
        self.on_change()

    # Passwords.

    def known(self, door: str, name: str, password: bytes, host: str | None) -> User | None:
        """The user, where the password was checked not long ago; None where it must be checked.

        Raises:
            AuthenticationError, ThrottledError: nobody is let in.
        """
        user = self._users.get(name)
        now_ms = self._clock.mono_ms()
        is_right = self._verdicts.get(self._verdicts.digest(name, password), user, now_ms)
        if is_right:
            return user
        self.admit_try(door, host)
        if is_right is False:
            self.failed(door, host)
            raise AuthenticationError(WRONG)
        return None

    async def authenticate(self, door: str, name: str, password: bytes, host: str | None) -> User:
        """The user, whose password it is.

        Raises:
            AuthenticationError, ThrottledError, BusyError: nobody is let in.
        """
        user = self.known(door, name, password, host)
        if user is not None:
            return user
        user, digest = self._users.get(name), self._verdicts.digest(name, password)
        checking = self._checking.get(digest)
        if checking is None:
            if len(self._checking) >= self.settings.password_queue:
                self.refused[door, "busy"] += 1
                raise BusyError("too many passwords wait to be checked; try again")
            checking = self._begin(digest, user, password)
        is_right = await asyncio.shield(checking)
        if self._users.get(name) is not user:
            raise BusyError("the user was changed meanwhile; try again")
        if user is None or not is_right:
            self.failed(door, host)
            raise AuthenticationError(WRONG)
        return user

    def _begin(self, digest: bytes, user: User | None, password: bytes) -> asyncio.Future[bool]:
        loop = asyncio.get_running_loop()
        checking = loop.run_in_executor(self._checkers, credentials.matches, user, password)
        self._checking[digest] = checking
        self._checked += 1

        def ended(checking: asyncio.Future[bool]) -> None:
            del self._checking[digest]
            is_right = checking.result()
            self._verdicts.put(digest, user, is_right=is_right, now_ms=self._clock.mono_ms())

        checking.add_done_callback(ended)
        return checking

    def admit_try(self, door: str, host: str | None) -> None:
        """Lets an address try, unless it has failed too often.

        Raises:
            ThrottledError: it must wait.
        """
        waits_ms = self._failures.waits_ms(host, self._clock.mono_ms())
        if waits_ms:
            self.refused[door, "throttled"] += 1
            raise ThrottledError(f"too many failures; try again in {waits_ms / 1000:.0f} s")

    def failed(self, door: str, host: str | None) -> None:
        """Counts a failure of an address."""
        self.refused[door, "wrong"] += 1
        self._failures.failed(host, self._clock.mono_ms())

    def exchange(self, mechanism: str) -> Exchange:
        """The server's side of a SCRAM authentication."""

        def keys_of(name: str) -> ScramKeys | None:
            user = self._users.get(name)
            return None if user is None else user.scram.get(mechanism)

        return Exchange(mechanism, keys_of, secrets.token_urlsafe(24), self._secret)

    # Who somebody is.

    def principal(self, user: User, host: str | None) -> Principal:
        """A user whom their password has let in."""
        return Principal(user.name, list(user.roles), host)

    def certified(self, identity: str | None, host: str | None) -> Principal | None:
        """Whom a certificate lets in."""
        if identity is None or self.settings.certificates == "off":
            return None
        user = self._users.get(identity)
        if user is None and self.settings.certificates == "known":
            return None
        roles = [] if user is None else list(user.roles)
        return Principal(identity, roles, host, is_certified=True)

    def may_publish(self, user: User | None, host: str | None, topic: str) -> bool:
        """Whether a user, or without users anybody, may publish to a topic."""
        return self._may(user, host, "publish", topic)

    def may_subscribe(self, user: User | None, host: str | None, topic_filter: str) -> bool:
        """Whether a user, or without users anybody, may see all that a filter matches."""
        return self._may(user, host, "subscribe", topic_filter)

    def may_read(self, user: User | None, host: str | None, stream: str) -> bool:
        """Whether a user, or without users anybody, may read a stream."""
        return self._may(user, host, "read", stream)

    def _may(self, user: User | None, host: str | None, action: str, what: str) -> bool:
        if self.is_open:
            return True
        principal = Principal(host=host) if user is None else self.principal(user, host)
        is_allowed, _, hole = self.rules.check(principal, "", action, what)
        return is_allowed and hole is None

    # Changes.

    def users(self) -> list[User]:
        """All of them, by name."""
        return [self._users[name] for name in sorted(self._users)]

    async def add(self, name: str, password: bytes | None, roles: Sequence[str]) -> None:
        """Adds a user; holds at once, and survives power loss.

        Raises:
            InvalidUserError, UserExistsError, UsersError: nobody is added.
            UnavailableError: a sync failed; the node writes nothing more.
        """
        user = await self._make(name, password, roles)
        await self._change(lambda known: users.add(known, user))

    async def change(
        self, name: str, password: bytes | None = None, roles: Sequence[str] | None = None
    ) -> None:
        """Sets a password, or roles; what is None stays.

        Raises:
            InvalidUserError, UnknownUserError, UsersError: all is as it was.
            UnavailableError: a sync failed; the node writes nothing more.
        """
        made = await self._make(name, password, roles or ())
        await self._change(
            lambda known: users.change(
                known, made, roles=roles is not None, password=password is not None
            )
        )

    async def remove(self, name: str) -> None:
        """Removes a user, and ends their connections and sessions.

        Raises:
            UnknownUserError, UserExistsError, UsersError: the user stays.
            UnavailableError: a sync failed; the node writes nothing more.
        """
        await self._change(lambda known: users.remove(known, name))

    async def change_acls(self, edit: Callable[[set[Acl]], set[Acl]]) -> list[Acl]:
        """Makes ACLs what `edit` says; holds at once, and survives power loss. Those of before.

        Raises:
            InvalidAclError: there would be too many.
            UsersError: they cannot be kept; all is as it was.
            UnavailableError: a sync failed; the node writes nothing more.
        """

        async def changed() -> list[Acl]:
            before = self.acls
            after = sorted(edit(set(before)))
            if after != before:
                rules = self._judged(after)
                await self._write(self._acl_store.save, after)
                self.acls, self.rules = after, rules
                self.hold()
            return before

        return await self._changes.make(changed)

    def _judged(self, acls: list[Acl]) -> AccessRules:
        try:
            return compiled(self.settings, acls)
        except UsersError as error:
            raise InvalidAclError(f"{error}; prefixes and * say the same with fewer") from None

    async def _make(self, name: str, password: bytes | None, roles: Sequence[str]) -> User:
        make = credentials.make
        return await asyncio.to_thread(make, name, password, roles, secrets.token_bytes)

    async def _change(self, edit: Callable[[dict[str, User]], None]) -> None:
        async def changed() -> None:
            self._take(await self._write(self._store.change, edit))
            self.hold()

        await self._changes.make(changed)

    async def _write(self, write: Callable[[W], T], what: W) -> T:
        """Waits for the disk, beside the loop."""
        if self.ended is not None:
            raise UnavailableError(f"the node has failed: {self.ended}")
        try:
            return await asyncio.to_thread(write, what)
        except LostWritesError as error:
            self.on_lost(str(error))
            raise

    def _take(self, known: Mapping[str, User]) -> None:
        """Users who are the same stay the same objects, and so what is known of their passwords."""
        before = self._users
        self._users = {
            name: before[name] if name in before and users.same(before[name], user) else user
            for name, user in known.items()
        }

    def samples(self) -> Iterator[Sample]:
        """Counters and gauges."""
        yield Sample("access_users", len(self._users), "Users.")
        yield Sample("access_rules", len(self.rules), "Rules, those of ACLs among them.")
        yield Sample("access_acls", len(self.acls), "ACLs of Kafka's admin clients.")
        yield Sample(
            "access_passwords_checked_total", self._checked, "Passwords checked by a thread."
        )
        yield Sample(
            "access_passwords_waiting", len(self._checking), "Passwords that are being checked."
        )
        yield Sample("access_passwords_known", len(self._verdicts), "Passwords known from before.")
        for (door, reason), refused in sorted(self.refused.items()):
            labels = (("door", door), ("reason", reason))
            yield Sample("access_refused_total", refused, "Clients that were not let in.", labels)

    async def quiet(self) -> None:
        """Waits until no change of users or ACLs is under way."""
        await self._changes.quiet()

    def close(self) -> None:
        """Checks no more."""
        self._checkers.shutdown(wait=False, cancel_futures=True)


def compiled(settings: AccessSettings, acls: Sequence[Acl]) -> AccessRules:
    """The rules of the settings, and behind them what ACLs come to.

    Raises:
        UsersError: there are too many.
    """
    rules = settings.compiled()
    for part in parts(acls, allows_unmatched=settings.allows_unmatched):
        try:
            _add(rules, part)
        except ValueError as error:
            raise UsersError(f"with {len(acls)} ACLs {error}") from None
    return rules


def _add(rules: AccessRules, part: Part) -> None:
    names = [part.name]
    rules.add(
        allows=part.allows,
        actions=list(part.actions),
        users=[] if part.user is None else [part.user],
        roles=[],
        clients=[],
        addresses=[] if part.host is None else [part.host],
        topics=[],
        streams=names if part.resource is Resource.TOPIC else [],
        groups=names if part.resource is Resource.GROUP else [],
    )
