"""What a publisher has sent and what it must send again: a machine without I/O.

Owns sequence numbers, the window, and the order of what is repeated. Knows no socket, no clock
and no payload's meaning.

Invariants:
- A message gets its sequence when it is first sent, and keeps it through every lost connection:
  the broker then stores it once.
- Within a connection sequences rise. After a lost connection everything unacknowledged is sent
  again in the order of its sequences, before anything new.
- A message that the broker refused was not stored, and later ones may have been; it gets a new
  sequence, because a broker takes a lower one than its last for a repeat.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.collect.messages import Pause

if TYPE_CHECKING:
    from collections.abc import Iterator

    from headrace.collect.messages import Message


@dataclass(slots=True)
class Entry:
    """A message on its way; `sequence` is 0 until it is first sent."""

    message: Message
    sequence: int = 0


@dataclass(slots=True)
class Counts:
    """What a window has seen, in readings unless named otherwise.

    Attributes:
        published: readings given to the broker at least once.
        acknowledged: readings whose PUBACK arrived.
        messages: messages whose PUBACK arrived.
        resent: publishes repeated after a lost connection, in messages.
        already_stored: repeats that the broker acknowledged without storing, in messages.
        refused: publishes that the broker refused for a time, in messages.
        payload_bytes: of the acknowledged messages.
    """

    published: int = 0
    acknowledged: int = 0
    messages: int = 0
    resent: int = 0
    already_stored: int = 0
    refused: int = 0
    payload_bytes: int = 0


class Window:
    """At most `size_max` messages unacknowledged, of an input that is read as room appears.

    Attributes:
        counts: what it has seen.
        pause_s: of the input, when it was last asked for a message; 0.0 where it had one.
        size_max: may be changed.
    """

    __slots__ = ("_again", "_flying", "_input", "_sequence", "counts", "pause_s", "size_max")

    def __init__(self, messages: Iterator[Message | Pause], size_max: int) -> None:
        self._input: Iterator[Message | Pause] | None = messages
        self._flying: dict[int, Entry] = {}
        self._again: deque[Entry] = deque()
        self._sequence = 0
        self.size_max = size_max
        self.pause_s = 0.0
        self.counts = Counts()

    @property
    def flying(self) -> int:
        """Messages sent on this connection and not acknowledged."""
        return len(self._flying)

    @property
    def done(self) -> bool:
        """Whether the input has ended and everything of it is acknowledged."""
        return self._input is None and not self._flying and not self._again

    def end_input(self) -> None:
        """Takes nothing more from the input; what is out is still brought home."""
        self._input = None

    def take(self) -> Entry | None:
        """The next message to send, numbered, or None while there is no room or nothing to send.

        What it returns must be told to `sent` before the next call.
        """
        self.pause_s = 0.0
        if len(self._flying) >= self.size_max:
            return None
        if self._again:
            entry = self._again.popleft()
        else:
            if self._input is None:
                return None
            try:
                message = next(self._input)
            except StopIteration:
                self._input = None
                return None
            if isinstance(message, Pause):
                self.pause_s = message.seconds
                return None
            entry = Entry(message)
            self.counts.published += message.readings
        if entry.sequence:
            self.counts.resent += 1
        else:
            self._sequence += 1
            entry.sequence = self._sequence
        return entry

    def sent(self, packet_id: int, entry: Entry) -> None:
        """`entry` left under an identifier that no other flying message has."""
        assert packet_id not in self._flying, packet_id
        self._flying[packet_id] = entry

    def acknowledged(self, packet_id: int, *, repeat: bool) -> Entry | None:
        """The broker has it durable; `repeat`: had it already. None for an unknown identifier."""
        entry = self._flying.pop(packet_id, None)
        if entry is not None:
            counts = self.counts
            counts.acknowledged += entry.message.readings
            counts.messages += 1
            counts.already_stored += repeat
            counts.payload_bytes += len(entry.message.payload)
        return entry

    def refused(self, packet_id: int) -> None:
        """The broker did not store it and may later; it is sent again under a new number."""
        entry = self._flying.pop(packet_id, None)
        if entry is not None:
            entry.sequence = 0
            self._again.append(entry)
            self.counts.refused += 1

    def disconnected(self) -> None:
        """The connection is gone; nobody knows which flying messages arrived."""
        self._again.extendleft(reversed(self._flying.values()))
        self._flying.clear()
