"""Helpers of the tests that drive the compiled `Store` directly."""

import contextlib
import select
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from kafka.record.default_records import DefaultRecordBatchBuilder

from headrace.native import Completion, Store, build_batch

SMALL = {"journal_bytes": 128 * 1024, "segment_bytes": 64 * 1024, "direct_write_bytes": 16 * 1024}
"""Files so small that a short test rolls, rotates and writes directly."""


@contextlib.contextmanager
def opened(path: Path, **settings: int) -> Iterator[Store]:
    """A store of small files, closed in order."""
    store = Store.open(str(path), **(SMALL | settings))
    try:
        yield store
    finally:
        store.close()


def crashed(path: Path, *batches: bytes, **settings: int) -> None:
    """Leaves a folder in which `batches` were acknowledged and no one closed."""
    store = Store.open(str(path), **(SMALL | settings))
    appender = Appender(store)
    log = store.open_log("s", 0, 1, 0)
    for data in batches:
        appender.append(log, data)
    del appender, store


def batch(
    *values: bytes, timestamp: int = 1000, source: tuple[str, int, int] | None = None
) -> bytes:
    """One batch of records that hold `values`; a source makes it an MQTT publisher's."""
    headers: list[tuple[str, bytes | None]] = []
    if source is not None:
        name, epoch, sequence = source
        headers = [
            ("source", name.encode()),
            ("epoch", b"%d" % epoch),
            ("sequence", b"%d" % sequence),
        ]
    records = [(b"key", value, headers, timestamp) for value in values]
    return build_batch(records, published=source is not None)


def produced(producer_id: int, epoch: int, sequence: int, *values: bytes) -> bytes:
    """One batch of an idempotent producer, as kafka-python builds it."""
    builder = DefaultRecordBatchBuilder(
        magic=2,
        compression_type=0,
        is_transactional=False,
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
        batch_size=1 << 20,
    )
    for at, value in enumerate(values):
        builder.append(at, timestamp=1000, key=None, value=value, headers=[])
    return bytes(builder.build())


@dataclass
class Appender:
    """Appends to a store and waits for what the disk says."""

    store: Store
    ticket: int = 0
    wall_ms: int = 0
    ended: dict[int, Completion] = field(default_factory=dict)

    def queue(self, log: int, data: bytes) -> int:
        """Queues batches; the base offset."""
        self.ticket += 1
        return self.store.append(log, data, self.ticket, self.wall_ms).base_offset

    def flush(self) -> None:
        """Waits until everything queued has ended well."""
        self.store.submit()
        while len(self.ended) < self.ticket:
            select.select([self.store.notify_fd()], [], [])
            for completion in self.store.poll():
                assert completion.ticket not in self.ended
                assert completion.error is None
                self.ended[completion.ticket] = completion

    def append(self, log: int, data: bytes) -> int:
        """Queues batches and waits for them; the base offset."""
        offset = self.queue(log, data)
        self.flush()
        return offset


def all_bytes(store: Store, log: int, max_bytes: int = 20_000) -> bytes:
    """Every committed batch, one read after the other."""
    return b"".join(reads(store, log, max_bytes))


def reads(store: Store, log: int, max_bytes: int) -> Iterator[bytes]:
    """Reads from the start offset to the high watermark."""
    offset, end = store.bounds(log)
    while offset < end:
        data = store.read(log, offset, max_bytes)
        assert data, f"nothing at {offset} below {end}"
        yield data
        offset = next_offset(data)


def next_offset(data: bytes) -> int:
    """The offset after the last batch of `data`, from its header."""
    at = 0
    while at < len(data):
        last = at
        at += 12 + int.from_bytes(data[at + 8 : at + 12], "big")
    base = int.from_bytes(data[last : last + 8], "big")
    return base + int.from_bytes(data[last + 23 : last + 27], "big") + 1


def files(folder: Path, pattern: str) -> list[Path]:
    """Files below `folder`, sorted."""
    return sorted(folder.rglob(pattern))
