"""Rounds of loads against each broker in turn, and the medians of what was counted."""

from __future__ import annotations

import asyncio
import itertools
import os
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from headrace.bench.figures import Figures, median_of
from headrace.bench.kafka import probes
from headrace.bench.kafka.clients import has_arrow
from headrace.bench.kafka.raw import RawConnection
from headrace.bench.kafka.readers import Got, Outlook, ReadJob
from headrace.bench.kafka.senders import SendJob, Sent
from headrace.bench.kafka.work import begin, workers
from headrace.bench.process import Usage
from headrace.client.admin import Admin
from headrace.client.consumer import Consumer
from headrace.client.login import Login
from headrace.client.records import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from headrace.bench.kafka.load import Load
    from headrace.bench.server import Server

MEASURES: Final = ("produce", "consume", "together", "latency", "connections", "metadata")
"""In the order in which they run: `latency` takes half of what those before it have shown."""

FAULTS: Final = ("lost", "duplicated", "reordered", "corrupted", "disconnected")
"""What should be 0, as far as `acks` promises it."""

HALF: Final = 0.5

_APIS: Final = {"confluent": ("consume",), "headrace": ("getmany", "get_arrow")}
"""By which calls each client is read."""

_RUNS = itertools.count()


@dataclass(frozen=True, slots=True)
class Outcome:
    """One round of one measure, by one client, against one server.

    Attributes:
        client: a client, or one with the call that it was read by; empty for bare sockets.
        trouble: the first error that a client told of.
        by_second: records read in each whole second, of `consume`, `together` and `latency`.
    """

    measure: str
    client: str
    server: str
    figures: Figures
    trouble: str | None = None
    by_second: Sequence[int] = ()


def run(
    measures: Sequence[str],
    load: Load,
    servers: Sequence[Server],
    clients: Sequence[str],
    rounds: int,
    watch: Callable[[str], None] = lambda _: None,
    outcomes: list[Outcome] | None = None,
) -> list[Outcome]:
    """Measures one thing after the other, each in rounds against all servers in turn.

    Args:
        measures: some of `MEASURES`.
        load: what each round does.
        servers: with different names.
        clients: some of `CLIENTS`, which are installed.
        rounds: 1 or more.
        watch: is told what goes on, in words.
        outcomes: gets them as they come, so that an error takes none away.

    Raises:
        InputError: the load makes no sense, or this machine cannot make it.
        HeadraceError: a broker is not reached, or refuses.
    """
    load.check()
    for server in servers:
        RawConnection(server.address, _login(server)).close()  # tells at once where there is none
    bench = _Bench(load, servers, clients, rounds, watch)
    bench.outcomes = [] if outcomes is None else outcomes
    for measure in MEASURES:
        if measure in measures:
            bench.measure(measure)
    return bench.outcomes


def medians(outcomes: Sequence[Outcome]) -> Figures:
    """The median of each figure over rounds; of what should be 0, the sum."""
    return median_of(
        [outcome.figures for outcome in outcomes], sums=FAULTS, maxima={"bytes_per_connection"}
    )


class _Bench:
    def __init__(
        self,
        load: Load,
        servers: Sequence[Server],
        clients: Sequence[str],
        rounds: int,
        watch: Callable[[str], None],
    ) -> None:
        self._load = load
        self._servers = servers
        self._clients = clients
        self._rounds = rounds
        self._watch = watch
        self.outcomes: list[Outcome] = []
        self._unasked: list[Outcome] = []  # rounds that only say what half is

    def measure(self, measure: str) -> None:
        """All rounds of one."""
        of_servers = {
            "consume": self._consume,
            "connections": self._connections,
            "metadata": self._metadata,
        }
        of_clients = {
            "produce": self._produce,
            "together": self._together,
            "latency": self._latency,
        }
        for index in range(self._rounds):
            for server in self._servers:
                self._watch(f"{server.name}: {measure}, round {index + 1} of {self._rounds}")
                if measure in of_servers:
                    of_servers[measure](server)
                else:
                    for client in self._clients:
                        of_clients[measure](server, client)

    # --- records --------------------------------------------------------------------------------

    def _produce(self, server: Server, client: str) -> None:
        with self._topic(server, self._load.partitions) as topic:
            before = self._usage(server)
            sent = self._sent(server, client, topic)
            used = self._used(server, before, sum(map(sum, (each.acknowledged for each in sent))))
            trimmed = self._trimmed(server, topic)
            got = self._read(server, "get_arrow" if has_arrow() else "getmany", topic, sent)
        figures = _of_sent(self._load, sent) | _of_reading(got) | used
        if trimmed is not None:
            figures |= {"trimmed": trimmed, "lost": max((figures["lost"] or 0) - trimmed, 0)}
        self._note("produce", client, server, figures, sent)

    def _consume(self, server: Server) -> None:
        with self._topic(server, self._load.partitions) as topic:
            sent = self._sent(server, self._clients[0], topic)
            for client in self._clients:
                for api in _APIS[client]:
                    if api == "get_arrow" and not has_arrow():
                        continue
                    before = self._usage(server)
                    got = self._read(server, api, topic, sent)
                    used = self._used(server, before, got.counts["received"])
                    rate = got.measured / got.seconds if got.seconds else None
                    figures: Figures = {
                        **_rates(self._load, rate),
                        "acknowledged": sum(map(sum, (each.acknowledged for each in sent))),
                        **_of_reading(got),
                        **used,
                    }
                    self._note("consume", f"{client} {api}", server, figures, sent, [got])

    def _together(self, server: Server, client: str) -> None:
        load = self._load
        with self._topic(server, load.partitions) as topic:
            senders = [
                self._send_job(server, client, topic, index) for index in range(load.producers)
            ]
            api, readers = _APIS[client][0], range(load.readers)
            before = self._usage(server)
            sent, got = self._beside(
                senders, [self._read_job(server, api, topic, reader) for reader in readers]
            )
            used = self._used(server, before, sum(each.counts["received"] for each in got))
        # What was sent in the measured time, until the last reader has all of it.
        end_us = max(each.until_us for each in got)
        seconds = (end_us - min(each.began_us for each in sent)) / 1e6
        rate = sum(each.measured for each in sent) / seconds if seconds > 0 else None
        figures = _of_sent(load, sent) | _rates(load, rate) | _of_reading(*got) | used
        self._note("together", client, server, figures, sent, got)

    def _latency(self, server: Server, client: str) -> None:
        load = self._load
        rate = load.rate or self._half(client)
        with self._topic(server, load.partitions) as topic:
            senders = [
                self._send_job(server, client, topic, index, rate / load.producers)
                for index in range(load.producers)
            ]
            reader = self._read_job(server, _APIS[client][0], topic)
            sent, (got,) = self._beside(senders, [reader])
        figures = _of_sent(load, sent) | _of_reading(got)
        times = got.counts["latency"]
        for name in ("p50", "p99", "p99.9", "max"):
            value = times[name] * 1e3 if times["count"] else None
            figures[f"{name.replace('.', '_')}_ms"] = value
        figures = {"asked_per_second": rate, **figures}
        self._note("latency", client, server, figures, sent, [got])

    def _half(self, client: str) -> float:
        """Half of what a client has produced or consumed, at the broker where that was least.

        The lesser of both: a reader that cannot keep up would show its own queue and no broker.
        """
        reading = f"{client} {_APIS[client][0]}"
        rates = []
        for server in self._servers:
            for measure, who in (("produce", client), ("consume", reading)):
                found = self._found(measure, who, server)
                if not found:
                    begun = len(self.outcomes)
                    self._produce(server, client) if measure == "produce" else self._consume(server)
                    self._unasked += self.outcomes[begun:]
                    del self.outcomes[begun:]
                    found = self._found(measure, who, server)
                rates.append(medians(found)["records_per_second"] or 0.0)
        return max(min(rates) * HALF, 1.0)

    def _found(self, measure: str, client: str, server: Server) -> list[Outcome]:
        wanted = (measure, client, server.name)
        outcomes = (*self.outcomes, *self._unasked)
        return [each for each in outcomes if (each.measure, each.client, each.server) == wanted]

    def _sent(self, server: Server, client: str, topic: str) -> list[Sent]:
        """What became of as many records as go into the time."""
        jobs = [
            self._send_job(server, client, topic, index) for index in range(self._load.producers)
        ]
        with workers(*jobs) as started:
            begin(started)
            return [worker.hear() for worker in started]

    def _beside(
        self, senders: Sequence[SendJob], readers: Sequence[ReadJob]
    ) -> tuple[list[Sent], list[Got]]:
        """What becomes of records that are read while they are sent."""
        with workers(*senders, *readers) as started:
            begin(started)
            sent = [worker.hear() for worker in started[: len(senders)]]
            reading, outlook = started[len(senders) :], _outlook(sent)
            for worker, job in zip(reading, readers, strict=True):
                worker.tell(outlook.of(job.partitions, self._load))
            return sent, [worker.hear() for worker in reading]

    def _read(self, server: Server, api: str, topic: str, sent: list[Sent]) -> Got:
        with workers(self._read_job(server, api, topic)) as started:
            begin(started)
            started[0].tell(_outlook(sent))
            got: Got = started[0].hear()
            return got

    def _send_job(
        self, server: Server, client: str, topic: str, index: int, rate: float | None = None
    ) -> SendJob:
        servers, login = str(server.address), _login(server)
        return SendJob(servers, login, client, topic, self._load, index, rate)

    def _read_job(self, server: Server, api: str, topic: str, reader: int | None = None) -> ReadJob:
        """Of one of the readers; of one that reads all, where it is None."""
        load = self._load
        partitions = range(load.partitions) if reader is None else load.partitions_of(reader)
        return ReadJob(str(server.address), _login(server), api, topic, load, partitions)

    def _trimmed(self, server: Server, topic: str) -> int | None:
        """Records that retention has taken, which takes no more; None where there was none."""
        kept_for_ever = {name: "-1" for name in self._load.configs if name.startswith("retention.")}
        if not kept_for_ever:
            return None
        servers, login = str(server.address), _login(server)
        places = [TopicPartition(topic, each) for each in range(self._load.partitions)]

        async def ask() -> int:
            async with Admin(servers, login=login) as admin:
                await admin.alter_configs(topic, kept_for_ever)
            async with Consumer(servers, enable_auto_commit=False, login=login) as consumer:
                return sum((await consumer.beginning_offsets(places)).values())

        return asyncio.run(ask())

    # --- connections and metadata ---------------------------------------------------------------

    def _connections(self, server: Server) -> None:
        figures = probes.connections(server, _login(server), self._load)
        self._note("connections", "", server, figures)

    def _metadata(self, server: Server) -> None:
        with ExitStack() as stack:
            counts = self._load.metadata_topics
            topics = [stack.enter_context(self._topic(server, count)) for count in counts]
            figures = probes.metadata(server, _login(server), topics, self._load)
        self._note("metadata", "", server, figures)

    # --- what they share -----------------------------------------------------------------------

    @contextmanager
    def _topic(self, server: Server, partitions: int) -> Iterator[str]:
        """A topic of its own for each run, which goes again."""
        topic = f"{self._load.prefix}-{os.getpid():x}-{next(_RUNS):04x}"
        servers, login, configs = str(server.address), _login(server), self._load.configs

        async def create() -> None:
            async with Admin(servers, login=login) as admin:
                await admin.create_topic(topic, partitions=partitions, configs=configs)

        async def delete() -> None:
            async with Admin(servers, login=login) as admin:
                await admin.delete_topic(topic)

        asyncio.run(create())
        try:
            yield topic
        finally:
            asyncio.run(delete())

    def _usage(self, server: Server) -> Usage | None:
        return None if server.pid is None else Usage.of(server.pid)

    def _used(self, server: Server, before: Usage | None, records: int) -> Figures:
        """What so many records took of the server, and its memory now."""
        after = self._usage(server)
        if before is None or after is None:
            return {"cpu_seconds_per_million": None, "resident_bytes": None}
        seconds = after.cpu_seconds - before.cpu_seconds
        return {
            "cpu_seconds_per_million": seconds / records * 1e6 if records else None,
            "resident_bytes": after.resident_bytes,
        }

    def _note(
        self,
        measure: str,
        client: str,
        server: Server,
        figures: Figures,
        sent: Sequence[Sent] = (),
        got: Sequence[Got] = (),
    ) -> None:
        trouble = next((each.trouble for each in sent if each.trouble), None)
        seconds = zip(*(each.by_second for each in got), strict=False)
        by_second = [sum(counts) for counts in seconds]
        self.outcomes.append(Outcome(measure, client, server.name, figures, trouble, by_second))


def _login(server: Server) -> Login | None:
    if server.credentials is None:
        return None
    user, password = server.credentials
    return Login(user, password.decode())


def _outlook(sent: Sequence[Sent]) -> Outlook:
    """By flow: of producer after producer, its partitions."""
    return Outlook(
        [count for each in sent for count in each.acknowledged],
        [count for each in sent for count in each.sent],
    )


def _of_sent(load: Load, sent: Sequence[Sent]) -> Figures:
    seconds = max(each.seconds for each in sent)
    rate = sum(each.measured for each in sent) / seconds if seconds else None
    return {
        **_rates(load, rate),
        "sent": sum(sum(each.sent) for each in sent),
        "acknowledged": sum(sum(each.acknowledged) for each in sent),
    }


def _rates(load: Load, rate: float | None) -> Figures:
    mib = None if rate is None else rate * load.payload / (1 << 20)
    return {"records_per_second": rate, "mib_per_second": mib}


def _of_reading(*got: Got) -> Figures:
    names = ("received", *FAULTS[:-1])
    return {name: sum(each.counts[name] for each in got) for name in names}
