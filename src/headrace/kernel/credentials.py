"""Users: what proves who somebody is, and the roles that they have.

Pure: salts come from outside. Owns the functions that turn a password into what is kept of it, and
their costs. Invariant: no password and nothing that stands for one on the wire can be had from a
`User` but by guessing.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Final

from argon2 import Type
from argon2.exceptions import Argon2Error, InvalidHashError
from argon2.low_level import hash_secret, verify_secret

from headrace import limits
from headrace.errors import InvalidUserError
from headrace.text import shown

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

ADMIN: Final = "admin"
"""The role that may manage a node."""

SCRAM_ITERATIONS: Final = 16_384
"""Of PBKDF2: the most that Kafka's own tools allow. RFC 7677 asks for 4,096 at least; what is more
is paid by clients, at each connect."""

MECHANISMS: Final[Mapping[str, str]] = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
"""Hash functions of the mechanisms (RFC 7677)."""

_TIME, _MEMORY_KIB, _LANES, _HASH_BYTES, _SALT_BYTES = 2, 19 * 1024, 1, 32, 16
"""Costs of argon2id, as OWASP has them (Password Storage Cheat Sheet): some 15 ms of one core."""

_NAME: Final = re.compile(r"[^\x00-\x20\x7f-\x9f:/+#]+")
_ROLE: Final = re.compile(r"[A-Za-z0-9._-]{1,64}")


@dataclass(frozen=True, slots=True)
class ScramKeys:
    """What a server keeps of a password for one mechanism (RFC 5802 3)."""

    salt: bytes
    iterations: int
    stored_key: bytes
    server_key: bytes


@dataclass(frozen=True, slots=True, eq=False)
class User:
    """Somebody.

    Attributes:
        name: as on the wire.
        roles: what rules name; `admin` may manage.
        password: argon2id, encoded with its salt and costs; None where only a certificate can say
            the name.
        scram: keys by mechanism.
    """

    name: str
    roles: tuple[str, ...] = ()
    password: str | None = None
    scram: Mapping[str, ScramKeys] = field(default_factory=dict)

    @property
    def is_admin(self) -> bool:
        """Whether they may manage the node."""
        return ADMIN in self.roles


def make(
    name: str, password: bytes | None, roles: Iterable[str], draw: Callable[[int], bytes]
) -> User:
    """A user; takes a tenth of a second of one core.

    Args:
        name: 1 to 256 bytes of UTF-8 without spaces, control characters, `:`, `/`, `+` and `#`.
        password: 1 to 1024 bytes; None for one who shows a certificate.
        roles: names of letters, digits, `.`, `_` and `-`.
        draw: gives that many random bytes.

    Raises:
        InvalidUserError: one of them is out of its range.
    """
    named = tuple(dict.fromkeys(roles))
    _check(name, password, named)
    if password is None:
        return User(name, named)
    hashed = hash_secret(
        password, draw(_SALT_BYTES), _TIME, _MEMORY_KIB, _LANES, _HASH_BYTES, Type.ID
    )
    keys = {each: scram_keys(each, password, draw(_SALT_BYTES)) for each in MECHANISMS}
    return User(name, named, hashed.decode(), keys)


def _check(name: str, password: bytes | None, roles: Iterable[str]) -> None:
    if not _NAME.fullmatch(name) or len(name.encode()) > limits.USER_NAME_BYTES_MAX:
        raise InvalidUserError(
            f"user name {shown(name)}: must be 1 to {limits.USER_NAME_BYTES_MAX} bytes without "
            f"spaces, control characters, ':', '/', '+' and '#'"
        )
    if password is not None and not 0 < len(password) <= limits.PASSWORD_BYTES_MAX:
        raise InvalidUserError(
            f"the password has {len(password)} bytes; it must have 1 to {limits.PASSWORD_BYTES_MAX}"
        )
    for role in roles:
        if not _ROLE.fullmatch(role):
            raise InvalidUserError(
                f"role {shown(role)}: must be 1 to 64 letters, digits, '.', '_' and '-'"
            )


@cache
def _of_nobody() -> str:
    """What is tried where there is no user."""
    salt = b"\0" * _SALT_BYTES
    return hash_secret(b"", salt, _TIME, _MEMORY_KIB, _LANES, _HASH_BYTES, Type.ID).decode()


def matches(user: User | None, password: bytes) -> bool:
    """Whether a password is the user's; takes as long where there is no user."""
    known = None if user is None else user.password
    hashed = known or _of_nobody()
    try:
        verify_secret(hashed.encode(), password, Type.ID)
    except (Argon2Error, InvalidHashError):
        return False
    return known is not None


def scram_keys(
    mechanism: str, password: bytes, salt: bytes, iterations: int = SCRAM_ITERATIONS
) -> ScramKeys:
    """The keys of a password, taken as its bytes are: Kafka's clients do not normalise it either.

    Source: RFC 5802 3.
    """
    name = MECHANISMS[mechanism]
    salted = hashlib.pbkdf2_hmac(name, password, salt, iterations)
    client_key = hmac.digest(salted, b"Client Key", name)
    return ScramKeys(
        salt,
        iterations,
        hashlib.new(name, client_key).digest(),
        hmac.digest(salted, b"Server Key", name),
    )
