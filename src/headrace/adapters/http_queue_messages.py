"""Messages of queues over HTTP: enqueued, pulled, settled, looked at. Translates, never decides."""

from __future__ import annotations

import asyncio
import base64
from typing import TYPE_CHECKING, Annotated, Any, Final, Self

from aiohttp import web
from pydantic import Field, StrictInt, StrictStr, model_validator

from headrace import limits
from headrace.adapters.answers import Fields, MessageFields, answer, bad_request, body, query
from headrace.adapters.http_access import may_publish, may_subscribe
from headrace.adapters.http_refusals import Connection
from headrace.config.readers import duration
from headrace.errors import HeadraceError, UnknownStreamError
from headrace.ports import Peek, Pull, Settlement
from headrace.text import shown

if TYPE_CHECKING:
    from collections.abc import Iterable

    from headrace.ports import Administration, PeekedMessage, QueueMessage

_Count = Annotated[StrictInt, Field(ge=1, le=limits.QUEUE_PULL_MESSAGES_MAX)]
_Texts = Annotated[list[StrictStr], Field(min_length=1, max_length=limits.QUEUE_PULL_MESSAGES_MAX)]


_TERMS: Final = {
    "key": "partition-key",
    "delay": "delay",
    "deliver_at": "deliver-at",
    "priority": "priority",
}
"""Fields of a message, and the user properties that they become."""


class _Message(MessageFields):
    topic: StrictStr = ""
    """Levels behind the queue's name."""
    key: StrictStr | None = None
    delay: StrictStr | None = None
    deliver_at: StrictInt | None = None
    priority: StrictInt | None = None

    @model_validator(mode="after")
    def _said_once(self) -> Self:
        if self.delay is not None and self.deliver_at is not None:
            raise ValueError("delay and deliver_at contradict each other; give one of them")
        for field, name in _TERMS.items():
            if name in self.properties and getattr(self, field) is not None:
                raise ValueError(
                    f"{field} stands among the properties, too, as {name}; say it once"
                )
        return self

    def below(self, queue: str) -> str:
        """The whole topic."""
        return f"{queue}/{self.topic}" if self.topic else queue

    def told(self) -> list[tuple[str, str]]:
        """As user properties."""
        said = ((name, getattr(self, field)) for field, name in _TERMS.items())
        terms = [(name, str(value)) for name, value in said if value is not None]
        return [*self.properties.items(), *terms]


class _EnqueueBody(_Message):
    messages: Annotated[
        list[_Message] | None, Field(min_length=1, max_length=limits.QUEUE_PULL_MESSAGES_MAX)
    ] = None

    @model_validator(mode="after")
    def _one_or_many(self) -> Self:
        if self.messages is not None and self.model_fields_set != {"messages"}:
            raise ValueError("give one message, or messages alone")
        return self

    def all(self) -> list[_Message]:
        """One, or many."""
        return [self] if self.messages is None else self.messages


class _PullBody(Fields):
    group: StrictStr
    filter: StrictStr | None = None
    max: _Count = limits.QUEUE_PULL_MESSAGES
    wait: Annotated[int, duration(0, limits.QUEUE_PULL_WAIT_MS_MAX)] = 0
    deadline: Annotated[int | None, duration(1, limits.QUEUE_DEADLINE_MS_MAX)] = None


class _SettleBody(Fields):
    group: StrictStr
    filter: StrictStr | None = None
    message_ids: _Texts
    reason: StrictStr | None = None
    delay: StrictStr | None = None


class _PeekQuery(Fields):
    group: str | None = None
    filter: str | None = None
    partition: Annotated[int, Field(ge=0)] | None = None
    from_: Annotated[int, Field(ge=0)] | None = Field(default=None, alias="from")
    limit: Annotated[int, Field(ge=1, le=limits.HTTP_PAGE_MAX)] = limits.HTTP_PAGE
    settled: bool = False


class QueueMessageRoutes:
    """The routes about messages of queues."""

    def __init__(self, node: Administration) -> None:
        self._node = node

    def routes(self) -> list[web.RouteDef]:
        """To add to an application."""
        return [
            web.post("/api/v1/queues/{name}/messages", self._enqueue),
            web.get("/api/v1/queues/{name}/messages", self._peek),
            web.post("/api/v1/queues/{name}/pull", self._pull),
            web.post("/api/v1/queues/{name}/ack", self._settle),
            web.post("/api/v1/queues/{name}/nack", self._settle),
            web.post("/api/v1/queues/{name}/reject", self._settle),
            web.post("/api/v1/queues/{name}/extend", self._settle),
        ]

    async def _enqueue(self, request: web.Request) -> web.Response:
        asked, name = await body(request, _EnqueueBody), request.match_info["name"]
        if "/" in name:  # which would be a topic behind another's name
            raise UnknownStreamError(f"no queue is named {shown(name)}")
        messages = []
        for index, each in enumerate(asked.all()):
            try:
                messages.append((each.below(f"$queue/{name}"), each.content(), 1, each.told()))
            except web.HTTPBadRequest as error:
                if asked.messages is None:
                    raise
                raise bad_request(f"messages[{index}]: {error.text}") from None
        for topic in {topic for topic, *_ in messages}:
            may_publish(self._node.gate, request, topic)
        at_once = limits.HTTP_PUBLISHED_AT_ONCE
        for begin in range(0, len(messages), at_once):
            ends = await asyncio.gather(
                *(self._node.publish(*each) for each in messages[begin : begin + at_once]),
                return_exceptions=True,
            )
            for index, end in enumerate(ends, begin):
                if isinstance(end, HeadraceError) and asked.messages is not None:
                    raise type(end)(f"messages[{index}]: {end}")
                if isinstance(end, BaseException):
                    raise end
        return answer({"enqueued": len(messages)})

    async def _pull(self, request: web.Request) -> web.StreamResponse:
        asked, name = await body(request, _PullBody), request.match_info["name"]
        may_subscribe(self._node.gate, request, f"$queue/{name}/{asked.filter or '#'}")
        terms = Pull(asked.group, asked.filter, asked.max, asked.wait, asked.deadline)
        pulling = self._node.queues().pull(name, terms)
        assert isinstance(request.protocol, Connection), "made by this door"
        request.protocol.on_gone = pulling.give_back
        try:
            messages = [_pulled(name, asked, each) for each in await pulling]
            response = answer({"messages": messages})
            await response.prepare(request)
            await response.write_eof()
            if request.transport is None or request.transport.is_closing():
                pulling.give_back()  # the write has failed at once, and nothing waited for it
        except BaseException:
            pulling.give_back()
            raise
        finally:
            request.protocol.on_gone = None
        return response

    async def _settle(self, request: web.Request) -> web.Response:
        asked, name = await body(request, _SettleBody), request.match_info["name"]
        verb = request.path.rpartition("/")[2]
        may_publish(self._node.gate, request, f"$queue/{name}/${verb}")
        ids = asked.message_ids
        terms = Settlement(asked.group, asked.filter, verb, ids, asked.delay, asked.reason)
        ends = await self._node.queues().settle(name, terms)
        told = [{"message_id": each, "result": end} for each, end in zip(ids, ends, strict=True)]
        is_all = all(end == "settled" for end in ends)
        return answer({"results": told}, status=200 if is_all else 409)

    async def _peek(self, request: web.Request) -> web.Response:
        asked, name = query(request, _PeekQuery), request.match_info["name"]
        may_subscribe(self._node.gate, request, f"$queue/{name}/#")
        filter_ = None if asked.filter == "#" else asked.filter
        terms = Peek(asked.group, filter_, asked.partition, asked.from_, asked.limit, asked.settled)
        found = await self._node.queues().peek(name, terms)
        following = None
        if found.following is not None:
            partition, offset = found.following
            following = {"partition": partition, "offset": offset}
        messages = [_peeked(each) for each in found.messages]
        return answer({"messages": messages, "next": following})


def _pulled(queue: str, asked: _PullBody, message: QueueMessage) -> dict[str, Any]:
    place = f"{message.partition}:{message.offset}:{message.attempt}"
    return {
        "message_id": place,
        "group": asked.group,
        **({} if asked.filter in (None, "#") else {"filter": asked.filter}),
        "attempt": message.attempt,
        "queue": queue,
        **_told(message),
    }


def _peeked(peeked: PeekedMessage) -> dict[str, Any]:
    return {
        "state": peeked.state,
        "client": peeked.client,
        "until": peeked.until_ms,
        "attempts": peeked.message.attempt,
        **_bytes("key", peeked.key),
        **_told(peeked.message),
    }


def _told(message: QueueMessage) -> dict[str, Any]:
    return {
        "partition": message.partition,
        "offset": message.offset,
        "first_enqueued": message.enqueued_ms,
        "topic": message.topic,
        "source_topic": message.source_topic,
        "properties": _grouped(message.properties),
        "content_type": message.content_type,
        "response_topic": message.response_topic,
        **_bytes("correlation_data", message.correlation_data),
        **_bytes("payload", message.payload),
    }


def _grouped(properties: Iterable[tuple[str, str]]) -> dict[str, str | list[str]]:
    """By name; what is there more than once as a list."""
    found: dict[str, list[str]] = {}
    for name, value in properties:
        found.setdefault(name, []).append(value)
    return {name: all_[0] if len(all_) == 1 else all_ for name, all_ in found.items()}


def _bytes(name: str, value: bytes | None) -> dict[str, str | None]:
    """As text, or in base64 where it is none."""
    try:
        return {name: None if value is None else value.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": base64.b64encode(value or b"").decode()}
