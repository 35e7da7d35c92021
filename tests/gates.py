"""Gates for nodes and doors that a test makes of parts."""

from pathlib import Path

from headrace.adapters.acls import AclFile
from headrace.adapters.clock import SystemClock
from headrace.adapters.users import UserFile
from headrace.config import AccessSettings
from headrace.native import Switchboard
from headrace.node.access import Gate


def open_gate(data: Path, switchboard: Switchboard) -> Gate:
    """One that is open to everybody."""
    return gate(data, switchboard)


def gate(data: Path, switchboard: Switchboard, **settings: object) -> Gate:
    """One with these settings of `[access]`."""
    access = AccessSettings.model_validate(settings)
    users, acls = UserFile(data / "users.json"), AclFile(data / "acls.json")
    return Gate(users, acls, access, SystemClock(), switchboard)
