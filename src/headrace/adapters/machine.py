"""What a process asks of its machine at start: descriptors, memory, and lines of log."""

from __future__ import annotations

import contextlib
import ctypes
import json
import logging
import os
import resource
import socket
import sys
import time
from datetime import UTC, datetime
from typing import Final

from headrace import limits

CONTEXT: Final = ("client", "stream", "partition")
"""What a log line may be about; given as `extra`."""

DESCRIPTORS_WITHOUT_LIMIT: Final = 1 << 20
"""Where the hard limit is infinite: Linux' own ceiling, the default of `fs.nr_open`."""


def raise_descriptor_limit() -> int:
    """Raises the soft limit of open files to the hard one; the limit that holds then."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = DESCRIPTORS_WITHOUT_LIMIT if hard == resource.RLIM_INFINITY else hard
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    return wanted


_M_TRIM_THRESHOLD: Final = -1
_M_MMAP_THRESHOLD: Final = -3
"""Parameters of mallopt(3)."""


def keep_freed_memory() -> None:
    """Has the C library keep freed memory for what comes next, within `limits.HEAP_KEPT_BYTES`.

    Whoever has tuned it from outside (mallopt(3): `MALLOC_…_`, `GLIBC_TUNABLES`) is left alone,
    and so is a C library without mallopt.
    """
    if any(name.startswith(("MALLOC_", "GLIBC_TUNABLES")) for name in os.environ):
        return
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_MMAP_THRESHOLD, limits.HEAP_MAPPED_BYTES)
        mallopt(_M_TRIM_THRESHOLD, limits.HEAP_KEPT_BYTES)


def log_to_stderr(level: str, style: str, node: str) -> None:
    """Sends log records to stderr: `style` is `text` or `json`, one line each."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_JsonFormatter(node) if style == "json" else _TextFormatter())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    logging.getLogger("asyncio").setLevel(logging.ERROR)
    logging.getLogger("aiohttp").setLevel(logging.ERROR)


def _stamp(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")


def _context(record: logging.LogRecord) -> dict[str, str]:
    return {name: str(record.__dict__[name]) for name in CONTEXT if name in record.__dict__}


class _TextFormatter(logging.Formatter):
    """`2026-01-31T12:00:00.000+00:00 INFO node.broker stream created stream=x`."""

    def format(self, record: logging.LogRecord) -> str:
        name = record.name.removeprefix("headrace.")
        context = "".join(f" {key}={value}" for key, value in _context(record).items())
        line = f"{_stamp(record)} {record.levelname} {name} {record.getMessage()}{context}"
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


class _JsonFormatter(logging.Formatter):
    """One JSON object a line."""

    def __init__(self, node: str) -> None:
        super().__init__()
        self._node = node

    def format(self, record: logging.LogRecord) -> str:
        value = {
            "time": _stamp(record),
            "level": record.levelname.lower(),
            "node": self._node,
            "logger": record.name,
            "message": record.getMessage(),
            **_context(record),
        }
        if record.exc_info:
            value["exception"] = self.formatException(record.exc_info)
        return json.dumps(value, ensure_ascii=False)


def notify_manager(state: str) -> None:
    """Tells systemd how the process is, where systemd wants to know.

    Source: sd_notify(3), of `Type=notify` and `Type=notify-reload`.
    """
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address.startswith(("/", "@")):
        return
    moment = f"\nMONOTONIC_USEC={time.monotonic_ns() // 1000}" if state == "RELOADING=1" else ""
    with (
        contextlib.suppress(OSError),  # who wanted to know has gone
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager,
    ):
        manager.connect(f"\0{address[1:]}" if address[0] == "@" else address)
        manager.send((state + moment).encode())


def discard_output() -> None:
    """Gives up standard output: the interpreter would complain at its exit of what is unwritten."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
