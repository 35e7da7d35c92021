"""Where a load goes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headrace.model import Address


@dataclass(frozen=True, slots=True)
class Server:
    """A server to be measured.

    Attributes:
        name: as the report calls it.
        address: of its listener.
        pid: of its process on this machine, to read what it takes.
        credentials: user name and password.
    """

    name: str
    address: Address
    pid: int | None = None
    credentials: tuple[str, bytes] | None = field(default=None, repr=False)
