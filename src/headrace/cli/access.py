"""Who is let in: the gate of `headrace serve`, out of the configuration and again on a reload."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from headrace.adapters.acls import FILE as ACL_FILE
from headrace.adapters.acls import AclFile
from headrace.adapters.users import FILE, UserFile
from headrace.cli.listeners import OPTIONS, addresses
from headrace.errors import UsersError
from headrace.kernel import access
from headrace.node.access import Gate

if TYPE_CHECKING:
    from headrace.config import Config
    from headrace.native import Switchboard
    from headrace.ports import Clock

log = logging.getLogger(__name__)


def users_of(config: Config) -> UserFile:
    """Where a node keeps its users."""
    return UserFile(config.access.users or config.node.data / FILE)


def acls_of(config: Config) -> AclFile:
    """Where a node keeps its ACLs."""
    return AclFile(config.node.data / ACL_FILE)


def is_open(config: Config) -> bool:
    """Whether a node would let everybody do everything.

    Raises:
        UsersError: users cannot be read.
    """
    return not (config.access.rules or users_of(config).load() or acls_of(config).load())


def make_gate(config: Config, clock: Clock, switchboard: Switchboard) -> Gate:
    """The gate of a node.

    Raises:
        UsersError: users cannot be read.
    """
    is_local = access.bind(addresses(config), OPTIONS) is None
    gate = Gate(
        users_of(config), acls_of(config), config.access, clock, switchboard, may_open=is_local
    )
    if not gate.is_open:
        _warn_of_plain_doors(config)
    return gate


def reload_gate(gate: Gate, config: Config) -> None:
    """Takes rules as they are now, and users; what cannot be read leaves those of before."""
    try:
        gate.reload(config.access)
    except UsersError as error:
        log.error("users and rules of before stay in use: %s", error)  # noqa: TRY400 - a line


def _warn_of_plain_doors(config: Config) -> None:
    doors = ("kafka", "frame", "http")
    secure = {table for table in doors if getattr(config, table).tls_certificate}
    if config.kafka.tls_bind is not None:
        secure.discard("kafka")
    for name, address in addresses(config).items():
        if name in {"mqtt", "ws", *doors} - secure and not address.loopback:
            log.warning("%s at %s takes passwords in plain text; give it TLS", name, address)
