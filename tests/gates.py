"""A gate for nodes that a test makes of parts: open to everybody."""

from pathlib import Path

from headrace.adapters.clock import SystemClock
from headrace.adapters.users import UserFile
from headrace.config import AccessSettings
from headrace.native import Switchboard
from headrace.node.access import Gate


def open_gate(data: Path, switchboard: Switchboard) -> Gate:
    return Gate(UserFile(data / "users.json"), AccessSettings(), SystemClock(), switchboard)
