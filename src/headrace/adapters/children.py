"""Servers as child processes: at ports that nobody has, and ended with this process."""

from __future__ import annotations

import os
import random
import socket
import sys
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from headrace.errors import StartError
from headrace.model import Address

if TYPE_CHECKING:
    from collections.abc import Sequence

_PORT_MIN: Final = 10_000
_PORT_TRIES: Final = 1000
_EPHEMERAL_MIN: Final = 49_152
"""Where the ports of connections begin, unless the kernel says otherwise (RFC 6335, section 6)."""

_LAUNCH: Final = (
    "import ctypes, os, signal, sys;"
    "ctypes.CDLL(None).prctl(1, signal.SIGTERM);"  # PR_SET_PDEATHSIG; it survives the exec
    "os.getppid() == int(sys.argv[1]) or sys.exit(1);"
    "os.execv(sys.argv[2], sys.argv[2:])"
)
"""Runs a command that gets SIGTERM when its parent is gone. In a process of its own, because code
between fork and exec may deadlock in a process with threads."""


def unused(count: int) -> list[Address]:
    """Free loopback ports, all different, below those that connections get by themselves (ip(7)).

    Raises:
        StartError: there are not so many.
    """
    try:
        end = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    except OSError:
        end = _EPHEMERAL_MIN
    found: list[Address] = []
    with ExitStack() as probes:
        for port in random.sample(range(_PORT_MIN, max(end, _PORT_MIN + _PORT_TRIES)), _PORT_TRIES):
            with suppress(OSError):  # somebody has it
                probes.enter_context(socket.socket()).bind(("127.0.0.1", port))
                found.append(Address("127.0.0.1", port))
            if len(found) == count:
                return found
    raise StartError("no free port on 127.0.0.1")


def with_us(command: Sequence[str]) -> list[str]:
    """The command, its program an absolute path, that gets SIGTERM when its starter is gone.

    That is the thread that starts it (prctl(2)): it must stay.
    """
    return [sys.executable, "-I", "-S", "-c", _LAUNCH, str(os.getpid()), *command]
