"""Verdicts before anybody has a name: which doors may be bound, which pages may call.

Pure. Where there are neither users nor rules every door is open, and therefore must be on a
loopback address; browsers are held off by the names that they call.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from headrace.model import Address

if TYPE_CHECKING:
    from collections.abc import Container, Mapping


def bind(doors: Mapping[str, Address], options: Container[str] = ()) -> str | None:
    """Why these doors may not be opened, or None.

    Args:
        doors: addresses by door or, where it has none of its own, by setting.
        options: doors that the command line has an option for.
    """
    for door, address in doors.items():
        if not address.loopback:
            safe = f"127.0.0.1:{address.port}"
            remedy = f"--{door} {safe}" if door in options else f'{door} = "{safe}"'
            return (
                f"{door} at {address} would be open to everyone who reaches this machine, as there "
                f"are no users and no access rules; bind it to loopback: {remedy}\n"
                f"or add a user: headrace users add NAME --role admin --data DIR"
            )
    return None


def twins(doors: Mapping[str, Address]) -> str | None:
    """Which two doors want one port, or None. Of hosts by name only the same name is known."""
    for name, address in doors.items():
        for other, its in doors.items():
            is_one = its.host == address.host or {its.host, address.host} & {"0.0.0.0", "::"}  # noqa: S104 - compared
            if name < other and its.port == address.port != 0 and is_one:
                return f"{name} at {address} and {other} at {its} want one port; change one of them"
    return None


def call(host: str, origin: str | None) -> str | None:
    """Why an HTTP request may not be served, or None.

    An open door on loopback is in reach of every web page that its user visits. A page of another
    site shows by `Origin`; a name rebound to loopback shows by `Host`.
    """
    try:
        name = urlsplit(f"//{host}").hostname or ""
    except ValueError:
        name = ""
    if not Address(name, 0).loopback:
        return f"the door is open on loopback only and was called {host!r}; use 127.0.0.1"
    return page(host, origin)


def page(host: str, origin: str | None) -> str | None:
    """Why a page of some site may not call, or None: it would do so with its reader's password."""
    if origin is None:
        return None
    try:
        site = urlsplit(origin).netloc
    except ValueError:  # half an IPv6 address, and the like
        site = ""
    return None if site == host else f"pages of {origin} may not call this node"


def upgrade(host: str, origin: str | None, origins: Container[str], *, is_open: bool) -> str | None:
    """Why a WebSocket may not be opened, or None.

    As `call` where nobody needs a password, else as `page`; but for the pages of `origins`.
    """
    trusted = origin in origins or "*" in origins
    return (call if is_open else page)(host, None if trusted else origin)
