"""MQTT clients and retained messages of a node, as administration asks for them.

Joins what the switchboard knows of a session with what a link knows of its other end, and logs of
theirs. Decides nothing. Long work goes page by page, with the loop free between two pages.
"""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import TYPE_CHECKING, Self

from headrace import limits
from headrace.errors import InvalidTopicError, UnavailableError
from headrace.kernel import positions
from headrace.ports import Origin, PartitionReading, StreamReading

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from headrace.native import (
        RetainedMessage,
        SessionReport,
        SessionSummary,
        Switchboard,
        TraceLine,
    )
    from headrace.node.runner import Runner
    from headrace.ports import Clock

log = logging.getLogger(__name__)


class Clients:
    """As `headrace.ports.Clients`."""

    def __init__(self, clock: Clock, switchboard: Switchboard, runner: Runner) -> None:
        self._clock = clock
        self._switchboard = switchboard
        self._runner = runner

    def sessions(
        self, pattern: str, connected: bool | None, start: int, count_max: int
    ) -> tuple[list[tuple[SessionSummary, Origin | None]], int | None]:
        """As the port says."""
        found, following = self._switchboard.list_sessions(
            pattern, connected, start, count_max, *self._clock.now()
        )
        return [(each, self._origin(each)) for each in found], following

    def session(
        self, client_id: str
    ) -> tuple[SessionReport, Origin | None, list[StreamReading]] | None:
        """As the port says."""
        report = self._switchboard.session(client_id, *self._clock.now())
        if report is None:
            return None
        streams = [self._reading(*each) for each in report.streams]
        return report, self._origin(report.summary), streams

    async def disconnect(self, client_id: str) -> bool | None:
        """As the port says."""
        ask = partial(self._switchboard.disconnect_client, client_id)
        done, durable = self._runner.administer(ask)
        if done:
            log.info("disconnected by an administrator", extra={"client": client_id})
        await durable
        return done

    async def delete_session(self, client_id: str) -> bool:
        """As the port says."""
        ask = partial(self._switchboard.delete_session, client_id)
        done, durable = self._runner.administer(ask)
        if done:
            log.info("session deleted by an administrator", extra={"client": client_id})
        await durable
        return done

    def retained(
        self, topic_filter: str, start: str, count_max: int, payload_bytes_max: int
    ) -> tuple[list[RetainedMessage], str | None]:
        """As the port says."""
        try:
            return self._switchboard.retained(
                topic_filter, start, count_max, payload_bytes_max, *self._clock.now()
            )
        except ValueError as error:
            raise InvalidTopicError(str(error)) from None

    def retained_message(self, topic: str) -> RetainedMessage | None:
        """As the port says."""
        if "+" in topic or "#" in topic:
            return None
        found, _ = self.retained(topic, "", 1, limits.PACKET_BYTES_CEILING)
        return found[0] if found else None

    async def count_retained(self, topic_filter: str) -> int:
        """As the port says."""
        return await _all_pages(self._switchboard.count_retained, topic_filter)

    async def delete_retained(self, topic_filter: str) -> int:
        """As the port says."""
        ends = []

        def page(topic_filter: str, start: str) -> tuple[int, str | None]:
            ask = partial(self._switchboard.delete_retained, topic_filter, start)
            answer, end = self._runner.administer(ask)
            ends.append(end)
            return answer

        try:
            deleted = await _all_pages(page, topic_filter)
        finally:
            await asyncio.gather(*ends)
        log.info("%d retained messages of %s deleted by an administrator", deleted, topic_filter)
        return deleted

    def trace(
        self, client_id: str | None, topic_filter: str | None, payload_bytes_max: int
    ) -> Trace:
        """As the port says."""
        try:
            number = self._switchboard.start_trace(client_id, topic_filter, payload_bytes_max)
        except ValueError as error:
            raise InvalidTopicError(str(error)) from None
        if number is None:
            raise UnavailableError("as many traces run as may; end one, or try again later")
        log.info("a trace begins of %s", client_id or topic_filter)
        return Trace(self._switchboard, number)

    def _reading(self, topic_filter: str, stream: int, offsets: list[int]) -> StreamReading:
        name = topic_filter.split("/")[1]
        partitions = self._runner.partitions
        found = []
        for index, position in enumerate(offsets):
            if (partition := partitions.get((stream, index))) is not None:
                start, end = partition.bounds
                lag = positions.lag(position, start, end)
                found.append(PartitionReading(index, position, end, lag))
        return StreamReading(topic_filter, name, not found, found)

    def _origin(self, summary: SessionSummary) -> Origin | None:
        link = None if summary.connection is None else self._runner.links.get(summary.connection)
        return None if link is None else Origin(link.peer, link.identity)


class Trace:
    """As `headrace.ports.Trace`."""

    def __init__(self, switchboard: Switchboard, number: int) -> None:
        self._switchboard = switchboard
        self._number = number

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._switchboard.stop_trace(self._number)

    def take(self) -> tuple[list[TraceLine], int]:
        """As the port says."""
        return self._switchboard.take_trace(self._number)


async def _all_pages(page: Callable[[str, str], tuple[int, str | None]], topic_filter: str) -> int:
    """The sum over all pages.

    Raises:
        InvalidTopicError: the filter is none.
    """
    total, start = 0, ""
    while True:
        try:
            found, following = page(topic_filter, start)
        except ValueError as error:
            raise InvalidTopicError(str(error)) from None
        total += found
        if following is None:
            return total
        start = following
        await asyncio.sleep(0)
