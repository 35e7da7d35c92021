"""Produce: batches are checked, appended, and answered once they are durable.

They are appended as they came, unless their stream has a codec of its own. A large batch is
checked, and recoded, beside the loop; what its connection sends after it waits meanwhile.

`acks` 1 and all mean the same on one node: on disk. With `acks` 0 nothing is answered, and an
error ends the connection, which is the only way in which such a client can hear of it.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from headrace import limits, native
from headrace.errors import HeadraceError, RecordsTooLargeError
from headrace.kernel.catalog import is_internal
from headrace.node.kafka.connection import HangUp
from headrace.node.kafka.pace import paced
from headrace.wire.kafka.errors import ErrorCode
from headrace.wire.kafka.messages import (
    ProducePartitionResponse,
    ProduceResponse,
    ProduceTopicResponse,
)

if TYPE_CHECKING:
    from headrace.node.kafka.connection import KafkaConnection
    from headrace.node.kafka.door import KafkaDoor
    from headrace.node.partition import Stream
    from headrace.wire.kafka.frames import Request
    from headrace.wire.kafka.messages import ProducePartition, ProduceRequest

VERSION_MIN: Final = 3
"""Batches of older requests have formats that are not stored (KIP-98 brought version 3)."""

ACKS: Final = frozenset({-1, 0, 1})

_MAGIC_AT: Final = 16
"""Where a batch, and a message set of the formats before it, says its format."""

_MAGIC: Final = 2

_ATTRIBUTES_AT: Final = 21
"""Where a batch says its codec, in the last three bits of two bytes."""

_CODECS: Final = ("none", "gzip", "snappy", "lz4", "zstd")
"""By number."""


async def produce(
    door: KafkaDoor, connection: KafkaConnection, request: Request
) -> ProduceResponse | None:
    """Appends in the order of requests and of their partitions, then waits for the disk."""
    body: ProduceRequest = request.body
    refusal = _refusal(request.version, body)
    begun = [
        (topic.name, each.index, refusal or await _begin(door, topic.name, each))
        async for topic in paced(body.topics)
        for each in topic.partitions
    ]
    connection.appended()
    waiting = [begin for _, _, begin in begun if isinstance(begin, asyncio.Future)]
    if waiting:
        await asyncio.wait(waiting, timeout=max(body.timeout_ms, 0) / 1000)
    topics: dict[str, list[ProducePartitionResponse]] = {}
    async for name, index, begin in paced(begun):
        topics.setdefault(name, []).append(_answer(door, name, index, begin))
    if body.acks == 0:
        _hang_up_on_error(topics)
        return None
    return ProduceResponse(
        topics=[ProduceTopicResponse(name=name, partitions=each) for name, each in topics.items()]
    )


def _refusal(version: int, body: ProduceRequest) -> ErrorCode:
    """Why nothing of a request is appended."""
    if version < VERSION_MIN:
        return ErrorCode.UNSUPPORTED_VERSION
    if body.acks not in ACKS:
        return ErrorCode.INVALID_REQUIRED_ACKS
    if body.transactional_id is not None:
        return ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    return ErrorCode.NONE


async def _begin(
    door: KafkaDoor, stream: str, asked: ProducePartition
) -> ErrorCode | asyncio.Future[int]:
    """Queues the batch for one partition: its base offset once durable, or why not."""
    try:
        of_stream = door.broker.partition(stream, asked.index).stream
        if is_internal(stream):
            return ErrorCode.INVALID_TOPIC_EXCEPTION
        admitted = await _admitted(door, asked.records or b"", of_stream)
        if isinstance(admitted, ErrorCode):
            return admitted
        # Looked up again: the stream may have gone while its batch was checked.
        partition = door.broker.partition(stream, asked.index)
        future = partition.append(admitted, door.broker.clock.wall_ms())
    except HeadraceError as error:
        return ErrorCode.of(error.kafka_code)
    door.appended(len(admitted), future)
    return future


async def _admitted(door: KafkaDoor, records: bytes, stream: Stream) -> bytes | ErrorCode:
    """What is to be appended, or why nothing is; found beside the loop where it takes long.

    Raises:
        CorruptRecordError, UnsupportedRecordError, InvalidRecordError, RecordsTooLargeError: as
            `_admit`.
    """
    settings, at_once = stream.settings, limits.CHECKED_AT_ONCE_BYTES_MAX
    if len(records) <= at_once and settings.codec in {None, _codec(records)}:
        with suppress(RecordsTooLargeError):  # for the loop
            return _admit(records, stream, at_once)
    loop = asyncio.get_running_loop()
    bytes_max = limits.DECOMPRESSED_BYTES_MAX
    return await loop.run_in_executor(door.checkers, _admit, records, stream, bytes_max)


def _admit(records: bytes, stream: Stream, bytes_max: int) -> bytes | ErrorCode:
    """`records`, in the stream's codec, where they are one batch of a plain producer.

    Where only the last record of each key is kept in the end, each must have one; where each record
    is a message of a queue, it must be such as somebody can be given. A header that
    misleads retention and lookups by time is put right, as Kafka does: some clients write the last
    record's timestamp there.

    Raises:
        CorruptRecordError, UnsupportedRecordError, InvalidRecordError, RecordsTooLargeError: they
            are damaged, or of an unknown codec, or of a producer without sequences, or decompress
            to more than `bytes_max`.
    """
    settings, record_bytes_max = stream.settings, stream.record_bytes_max
    if len(records) > _MAGIC_AT and records[_MAGIC_AT] != _MAGIC:
        return ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT
    summary = native.validate_batches(records, bytes_max=bytes_max)
    if summary.log_append_time:
        return ErrorCode.INVALID_TIMESTAMP
    of_brokers = summary.control or summary.transactional or summary.delete_horizon
    if summary.batches != 1 or summary.records == 0 or of_brokers:
        return ErrorCode.INVALID_RECORD
    if settings.compacts and summary.keyless:
        return ErrorCode.INVALID_RECORD
    if record_bytes_max is not None and (
        summary.record_bytes > record_bytes_max
        or summary.record_headers > limits.STREAM_RECORD_HEADERS_MAX
    ):
        return ErrorCode.MESSAGE_TOO_LARGE
    codec = settings.codec or (_codec(records) if summary.misdated else None)
    return records if codec is None else native.recode_batches(records, codec)


def _codec(records: bytes) -> str | None:
    """The codec that the batch says it has."""
    number = records[_ATTRIBUTES_AT + 1] & 0x07 if len(records) > _ATTRIBUTES_AT + 1 else 0
    return _CODECS[number] if number < len(_CODECS) else None


def _answer(
    door: KafkaDoor, stream: str, index: int, begin: ErrorCode | asyncio.Future[int]
) -> ProducePartitionResponse:
    response = ProducePartitionResponse(index=index)
    if isinstance(begin, ErrorCode):
        response.error_code = begin
    elif not begin.done():
        response.error_code = ErrorCode.REQUEST_TIMED_OUT
    else:
        try:
            response.base_offset = begin.result()
            response.log_start_offset = door.broker.partition(stream, index).start_offset
        except HeadraceError as error:
            response.error_code = ErrorCode.of(error.kafka_code)
    return response


def _hang_up_on_error(topics: dict[str, list[ProducePartitionResponse]]) -> None:
    for name, partitions in topics.items():
        for each in partitions:
            if each.error_code != ErrorCode.NONE:
                code = ErrorCode(each.error_code).name
                raise HangUp("produce", f"produce to {name}/{each.index} without acks: {code}")
