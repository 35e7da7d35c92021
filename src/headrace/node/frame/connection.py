"""The beginning of a connection of the frame door: one line each way, and who takes over.

Owns the client's line and the answer to it. Must not know frames. Invariants: the line comes whole
within `connect_ms`, or the connection ends; what follows it is kept, and no more is read, until it
is answered.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from headrace import limits
from headrace.errors import HeadraceError
from headrace.node.frame import refusals
from headrace.node.frame.consume import Consumer
from headrace.node.frame.permit import permit
from headrace.node.frame.produce import Producer
from headrace.wire import frame
from headrace.wire.frame import Mode, Refusal
from headrace.wire.kafka.errors import ErrorCode

if TYPE_CHECKING:
    from headrace.node.frame.door import FrameDoor
    from headrace.ports import Link

log = logging.getLogger(__name__)


class FrameConnection:
    """The receiver of one link."""

    __slots__ = (
        "_at_end", "_door", "_early", "_full", "_link", "_opening", "_over", "_then", "_timer",
    )  # fmt: skip

    def __init__(self, door: FrameDoor, link: Link) -> None:
        self._door = door
        self._link = link
        self._early = bytearray()
        self._over = False
        self._full = False
        self._at_end = False
        self._opening: asyncio.Task[None] | None = None
        self._then: Producer | Consumer | None = None
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(door.settings.connect_ms / 1000, self._late)

    def received(self, data: bytes) -> None:
        """Bytes came in."""
        if self._then is not None:
            self._then.received(data)
            return
        if self._over:
            return
        self._early += data
        if self._opening is not None:
            return
        line, end, rest = self._early.partition(b"\n")
        if len(line) > limits.FRAME_LINE_BYTES_MAX:
            text = f"the first line has more than {limits.FRAME_LINE_BYTES_MAX} bytes"
            self._refuse(Refusal("line_malformed", ErrorCode.INVALID_REQUEST, text))
        elif end:
            self._timer.cancel()
            self._early = rest
            self._link.pause()
            self._opening = asyncio.get_running_loop().create_task(self._open(bytes(line)))

    def ended(self) -> bool:
        """The client sends no more; whether it is to be told something."""
        if self._then is not None:
            return self._then.ended()
        self._at_end = True
        return self._opening is not None and not self._over

    def writable(self, ready: bool) -> None:
        """The transport is full, or has room again."""
        self._full = not ready
        if self._then is not None:
            self._then.writable(ready)

    def closed(self) -> None:
        """The link is gone."""
        self._over = True
        self._timer.cancel()
        if self._opening is not None:
            self._opening.cancel()
        if self._then is not None:
            self._then.closed()

    async def _open(self, line: bytes) -> None:
        try:
            opening = frame.parse(line)
            may = await permit(self._door.gate, self._link, opening)
            make = Producer if opening.mode is Mode.PRODUCE else Consumer
            then = await make.open(self._door, self._link, opening, may)
        except Refusal as refusal:
            self._refuse(refusal)
            return
        except HeadraceError as error:
            self._refuse(refusals.of_error(error))
            return
        except Exception:  # a bug must cost one connection, not the node
            log.exception("opening failed", extra={"client": self._link.peer})
            self._refuse(refusals.of_bug())
            return
        early, self._early = bytes(self._early), bytearray()
        self._then = then
        self._link.resume()
        then.begin()
        if self._full:
            then.writable(False)  # noqa: FBT003 - the port's one flag
        if early:
            then.received(early)
        if self._at_end and not then.ended():
            self._link.close()

    def _late(self) -> None:
        text = f"no whole line within {self._door.settings.connect_ms / 1000:g} s"
        self._refuse(Refusal("line_timeout", ErrorCode.REQUEST_TIMED_OUT, text))

    def _refuse(self, refusal: Refusal) -> None:
        if self._over:
            return
        self._over = True
        self._timer.cancel()
        self._early = bytearray()
        self._door.refuse(refusal)
        log.info("connection refused: %s", refusal, extra={"client": self._link.peer})
        self._link.write(frame.refused(refusal))
        self._link.close()
