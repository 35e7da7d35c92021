"""Listening sockets: TCP and Unix, bound and let listen.

Binding and listening are two steps, so that a node which cannot have all of its ports leaves
nothing behind.
"""

from __future__ import annotations

import errno
import os
import socket
import stat
import struct
from pathlib import Path
from typing import Final

from headrace import limits
from headrace.errors import StartError
from headrace.model import Address

_PATH_BYTES_MAX: Final = 107
"""Of a Unix socket's path on Linux (`unix(7)`: 108 with the NUL)."""

_CREDENTIALS: Final = struct.Struct("3i")
"""`struct ucred`: pid, uid, gid."""


_REMEDIES: Final = {
    errno.EADDRINUSE: "choose another port, or stop what uses it",
    errno.EADDRNOTAVAIL: "choose an address that this machine has",
    errno.EACCES: "choose a port from 1024 on, or give the node CAP_NET_BIND_SERVICE",
}


def bind(address: Address) -> socket.socket:
    """A bound TCP socket, not yet listening; a restart binds the same port at once.

    The kernel probes connections that are silent, so that a peer which has vanished and whom no
    keep-alive of its protocol holds to a time does not stay for ever.

    Raises:
        StartError: why it cannot be bound, and what to do.
    """
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    # What it accepts inherits it (`tcp(7)`), without a call for each connection.
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, limits.SOCKET_UNSENT_BYTES)
    try:
        sock.bind(address)
    except OSError as error:
        sock.close()
        raise _cannot_listen(address, error) from None
    return sock


def bind_unix(path: Path, mode: int) -> socket.socket:
    """A bound Unix socket whose file has `mode`; one that nobody listens on any more is replaced.

    Raises:
        StartError: why it cannot be bound, and what to do.
    """
    if len(os.fsencode(path)) > _PATH_BYTES_MAX:
        raise StartError(f"the path of a Unix socket has {_PATH_BYTES_MAX} bytes at most: {path}")
    _remove_stale(path)
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    before = os.umask(0o777 & ~mode)  # no moment in which others could connect
    try:
        sock.bind(str(path))
    except OSError as error:
        sock.close()
        raise StartError(
            f"cannot listen on {path}: {error.strerror}; choose another mqtt.unix_path"
        ) from None
    finally:
        os.umask(before)
    return sock


def _remove_stale(path: Path) -> None:
    try:
        if not stat.S_ISSOCK(path.stat().st_mode):
            raise StartError(
                f"{path} is there and is no socket; remove it or choose another mqtt.unix_path"
            )
    except FileNotFoundError:
        return
    except OSError as error:
        raise StartError(f"cannot listen on {path}: {error.strerror}") from None
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(0)  # a full queue of one that listens must not hold us up
        failed = probe.connect_ex(str(path))
    if failed == errno.ECONNREFUSED:
        path.unlink(missing_ok=True)
    elif failed != errno.ENOENT:
        raise StartError(
            f"cannot listen on {path}: another process does; choose another mqtt.unix_path, or "
            f"stop it"
        )


def listen(sock: socket.socket) -> Address | Path:
    """Lets a bound socket listen; the address as bound.

    Two sockets may be bound to one port as long as neither listens, and uvloop takes no notice of
    the refusal that the second then gets.

    Raises:
        StartError: another socket listens there.
    """
    name = sock.getsockname()
    address = Path(name) if sock.family == socket.AF_UNIX else Address(*name[:2])
    try:
        sock.listen(limits.LISTEN_BACKLOG)
    except OSError as error:
        raise _cannot_listen(address, error) from None
    return address


def peer_user(sock: socket.socket) -> int:
    """The user of the process at the other end of a Unix socket, when it connected."""
    data = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    user: int = _CREDENTIALS.unpack(data)[1]
    return user


def backlog_max() -> int:
    """What the kernel cuts the accept queue to (`net.core.somaxconn`)."""
    try:
        return int(Path("/proc/sys/net/core/somaxconn").read_text())
    except (OSError, ValueError):
        return limits.LISTEN_BACKLOG  # nothing that we could tell


def _cannot_listen(address: Address | Path, error: OSError) -> StartError:
    remedy = _REMEDIES.get(error.errno or 0, "choose another")
    return StartError(f"cannot listen on {address}: {error.strerror or error}; {remedy}")
