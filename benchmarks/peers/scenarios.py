"""What happens to work in a queue, asked of each broker in the same way. A row is a function."""

import contextlib
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import NamedTuple

from broker import (
    Broker,
    CannotBeAskedError,
    Consumer,
    Delivery,
    Mqtt,
    RefusedError,
    Terms,
    Wish,
    await_true,
    until_quiet,
)

PATIENCE = 10.0
"""Seconds after which what has not come does not come."""
QUIET = 1.5
"""Seconds without a delivery after which all that was ready has come."""

MANY = 1000
DEADLINE_OF_MANY = 8.0
"""Longer than it takes to be given so many and to settle half of them."""
PATIENCE_OF_MANY = 30.0
REST = 2.0
"""Seconds after which what was told to a broker is on its disk, by its own rhythm."""
AGE = 5.0
"""Seconds after which a queue that was made is on the broker's disk, by its own rhythm."""


class Cell(NamedTuple):
    """What was measured: yes, no or a figure; and more about it."""

    fact: str
    detail: str = ""


def verdict(holds: bool, detail: str = "") -> Cell:
    return Cell("yes" if holds else "no", detail)


@contextlib.contextmanager
def consuming(broker: Broker, queue: str, prefetch: int = 10) -> Iterator[Consumer]:
    consumer = broker.consume(queue, prefetch)
    try:
        yield consumer
    finally:
        consumer.close()


def expected(consumer: Consumer) -> Delivery:
    delivery = consumer.receive(PATIENCE)
    assert delivery is not None, "nothing was delivered"
    return delivery


def since(began: float) -> str:
    return f"{time.monotonic() - began:.1f} s"


def letter(broker: Broker, queue: str, what: str) -> Cell:
    """What became of a message that should be dead now, and what its letter says."""
    try:
        consumer = broker.letters(queue)
    except (CannotBeAskedError, TimeoutError) as none:
        return Cell("no", f"{what}; {none}")
    dead = consumer.receive(PATIENCE)
    consumer.close()
    if dead is None:
        return Cell("no", what)
    told = ", ".join(f"{key} `{value}`" for key, value in sorted(dead.told.items()) if value)
    return Cell("yes", f"{what}; {told}")


# --- redelivery -----------------------------------------------------------------------------------


def nacked(broker: Broker, queue: str) -> Cell:
    broker.make(queue)
    broker.put(queue, ["work"])
    with consuming(broker, queue) as worker:
        worker.nack(expected(worker))
        began = time.monotonic()
        again = worker.receive(PATIENCE)
        return verdict(again is not None, f"after {since(began)}" if again else "")


def nacked_for_a_while(broker: Broker, queue: str) -> Cell:
    broker.make(queue)
    broker.put(queue, ["work"])
    with consuming(broker, queue) as worker:
        worker.nack(expected(worker), 0.5)
        began = time.monotonic()
        again = worker.receive(PATIENCE)
        took = time.monotonic() - began
        return verdict(again is not None and took >= 0.4, f"after {took:.1f} s")


def unanswered(broker: Broker, queue: str) -> Cell:
    with broker.deadline(1):
        broker.make(queue)
        broker.put(queue, ["work"])
        with consuming(broker, queue) as worker:
            expected(worker)
            began = time.monotonic()
            again = worker.receive(PATIENCE)
            closed = ", its channel was closed" if worker.closed else ""
            return verdict(again is not None, f"after {since(began)}{closed}" if again else "")


def counted(broker: Broker, queue: str) -> Cell:
    broker.make(queue)
    broker.put(queue, ["work"])
    told = []
    with consuming(broker, queue) as worker:
        for _ in range(3):
            delivery = expected(worker)
            told.append(delivery.count)
            worker.nack(delivery)
    return verdict(any(told), ", ".join(count or "nothing" for count in told))


def stuck(broker: Broker, queue: str) -> Cell:
    broker.make(queue)
    broker.put(queue, [str(number) for number in range(100)])
    with consuming(broker, queue) as holds, consuming(broker, queue, 100) as works:
        held = [expected(holds) for _ in range(10)]
        done = []
        for delivery in until_quiet(works, QUIET):
            works.ack([delivery])
            done.append(delivery)
    return verdict(len(done) == 90, f"{len(held)} held, {len(done)} of 90 others settled")


# --- dead letters ---------------------------------------------------------------------------------


def failed_too_often(broker: Broker, queue: str) -> Cell:
    broker.make(queue, Terms(attempts=3))
    broker.put(queue, ["work"])
    deliveries = 0
    with consuming(broker, queue) as worker:
        for delivery in until_quiet(worker, QUIET):
            deliveries += 1
            worker.nack(delivery)
    return letter(broker, queue, f"after {deliveries} deliveries")


def rejected(broker: Broker, queue: str) -> Cell:
    broker.make(queue)
    broker.put(queue, ["work"])
    with consuming(broker, queue) as worker:
        worker.reject(expected(worker))
        again = worker.receive(QUIET)
    return letter(broker, queue, "it does not come again" if again is None else "it came again")


def too_old(broker: Broker, queue: str) -> Cell:
    broker.make(queue, Terms(ttl=1))
    broker.put(queue, ["work"])
    time.sleep(2)
    with consuming(broker, queue) as worker:
        came = worker.receive(QUIET)
        return letter(broker, queue, "not delivered" if came is None else "delivered")


# --- order ----------------------------------------------------------------------------------------


def key_in_order(broker: Broker, queue: str) -> Cell:
    broker.make(queue, Terms(order="key"))
    for body in ("a1", "a2", "b1", "b2"):
        broker.put(queue, [body], Wish(key=body[0]))
    seen = []
    with consuming(broker, queue) as worker:
        for delivery in until_quiet(worker, QUIET):
            seen.append(delivery.body)
            if seen.count("a1") == 1 and delivery.body == "a1":
                worker.nack(delivery)
            else:
                worker.ack([delivery])
    of_a, of_b = ([body for body in seen if body[0] == key] for key in "ab")
    return verdict((of_a, of_b) == (["a1", "a1", "a2"], ["b1", "b2"]), " ".join(seen))


def strictly_in_order(broker: Broker, queue: str) -> Cell:
    broker.make(queue, Terms(order="strict", attempts=10))
    broker.put(queue, ["1", "2", "3"])
    seen = []
    with consuming(broker, queue, 1) as worker:
        for delivery in until_quiet(worker, QUIET):
            seen.append(delivery.body)
            if len(seen) == 1:
                worker.nack(delivery)
            else:
                worker.ack([delivery])
    return verdict(seen == ["1", "1", "2", "3"], " ".join(seen))


def by_priority(broker: Broker, queue: str) -> Cell:
    broker.make(queue, Terms(priorities=True))
    for priority in (1, 5, 1, 9):
        broker.put(queue, [str(priority)], Wish(priority=priority))
    seen = []
    with consuming(broker, queue, 1) as worker:
        for delivery in until_quiet(worker, QUIET):
            seen.append(delivery.body)
            worker.ack([delivery])
    return verdict(seen == ["9", "5", "1", "1"], " ".join(seen))


# --- kill -9 --------------------------------------------------------------------------------------


def make_long_before(broker: Broker, queue: str) -> None:
    """Who is killed has had its queues for a while."""
    broker.make(queue)
    time.sleep(AGE)


def killed_in_between(broker: Broker, queue: str, rest: float) -> Cell:
    with broker.deadline(DEADLINE_OF_MANY):
        make_long_before(broker, queue)
        broker.put(queue, [str(number) for number in range(MANY)])
        with consuming(broker, queue, MANY) as worker:
            given = [expected(worker) for _ in range(MANY)]
            done, owed = given[::2], given[1::2]
            worker.ack(done)
            time.sleep(rest)
            broker.kill()
        broker.start()
        with consuming(broker, queue, MANY) as worker:
            began = time.monotonic()
            still, came, waited = {each.body for each in owed}, set(), since(began)
            # Some give at once what was in flight, others when its deadline has passed.
            while delivery := worker.receive(PATIENCE_OF_MANY if still else QUIET):
                worker.ack([delivery])
                came.add(delivery.body)
                still.discard(delivery.body)
                waited = since(began)
    repeated = len({each.body for each in done} & came)
    detail = f"{len(still)} of {len(owed)} lost, {repeated} of {len(done)} that were settled came"
    return verdict(not still and not repeated, f"{detail} again; all after {waited}")


def killed_behind_confirms(broker: Broker, queue: str) -> Cell:
    make_long_before(broker, queue)
    broker.put(queue, [str(number) for number in range(MANY)])
    broker.kill()
    broker.start()
    with consuming(broker, queue, MANY) as worker:
        came = {each.body for each in until_quiet(worker, QUIET)}
    return verdict(len(came) == MANY, f"{MANY - len(came)} of {MANY} lost")


# --- publishes ------------------------------------------------------------------------------------


def delayed(broker: Broker, queue: str) -> Cell:
    broker.make(queue)
    broker.put(queue, ["later"], Wish(delay=1))
    began = time.monotonic()
    broker.put(queue, ["now"])
    with consuming(broker, queue) as worker:
        seen = [expected(worker).body for _ in range(2)]
        return verdict(seen == ["now", "later"], f"after {since(began)}")


def once(broker: Broker, queue: str) -> Cell:
    broker.make(queue)
    for _ in range(2):
        broker.put(queue, ["work"], Wish(dedup=queue))
    return stored(broker, queue)


def once_over_a_kill(broker: Broker, queue: str) -> Cell:
    make_long_before(broker, queue)
    broker.put(queue, ["work"], Wish(dedup=queue))
    broker.kill()
    broker.start()
    broker.put(queue, ["work"], Wish(dedup=queue))
    return stored(broker, queue)


def stored(broker: Broker, queue: str) -> Cell:
    with consuming(broker, queue) as worker:
        found = len(list(until_quiet(worker, QUIET)))
    return verdict(found == 1, f"{found} stored of 2")


def bounded(broker: Broker, queue: str) -> Cell:
    broker.make(queue, Terms(bound=10))
    taken = 0
    try:
        for number in range(20):
            broker.put(queue, [str(number)])
            taken += 1
    except RefusedError as refused:
        return Cell("yes", f"{taken} taken, then {refused}")
    return Cell("no", f"{taken} taken")


def pulled(broker: Broker, queue: str) -> Cell:
    broker.make(queue)
    broker.put(queue, ["1", "2"])
    one = broker.take_one(queue)
    return verdict(one is not None and one.body == "1")


# --- MQTT 3.1.1 -----------------------------------------------------------------------------------


def by_old_clients(broker: Broker, queue: str) -> Cell:
    """Two share the work, and what one has not acknowledged when it falls is the other's."""
    topic, where = broker.mqtt_places(queue)
    count = 10
    falls = Mqtt(broker.mqtt, client_id=f"{queue}-falls", manual_ack=True)
    with Mqtt(broker.mqtt) as producer, Mqtt(broker.mqtt, client_id=f"{queue}-stays") as stays:
        for each in (falls, stays):
            each.subscribe(where)
        producer.publish(topic, [str(number) for number in range(count)])
        here, there = stays.messages, falls.messages
        await_true(lambda: here.qsize() + there.qsize() >= count, "not all were delivered")
        time.sleep(QUIET)
        deliveries = here.qsize() + there.qsize()
        falls.drop()
        if deliveries > count:
            return Cell("no", f"each of two consumers got its own: {deliveries} of {count}")
        with contextlib.suppress(TimeoutError):
            await_true(lambda: here.qsize() >= count, "", PATIENCE)
        got = here.qsize()
    return verdict(got == count, f"{deliveries} of {count} between two; {got} when one had fallen")


ROWS: dict[str, tuple[str, Callable[[Broker, str], Cell]]] = {
    "nack": ("a message that a lone consumer nacks comes again to it", nacked),
    "nack-delay": ("it rests as long as the nack says (0.5 s)", nacked_for_a_while),
    "deadline": ("one that it leaves unanswered for 1 s comes again to it", unanswered),
    "count": ("a delivery tells which it is of its message (of three)", counted),
    "stuck": ("a consumer that settles nothing holds up no other of its queue", stuck),
    "attempts": ("what fails 3 times becomes a dead letter", failed_too_often),
    "reject": ("what is rejected becomes a dead letter", rejected),
    "ttl": ("what is too old (1 s) becomes a dead letter", too_old),
    "key": ("order of a key holds over a failure, and no other key waits", key_in_order),
    "strict": ("order of the queue holds over a failure", strictly_in_order),
    "priority": ("what has a higher priority overtakes", by_priority),
    "kill-owed": (
        "kill -9 between delivery and ack: what is owed comes again, what is settled does not",
        partial(killed_in_between, rest=0),
    ),
    "kill-owed-rest": (
        "the same 2 s after the last ack",
        partial(killed_in_between, rest=REST),
    ),
    "kill-confirmed": ("kill -9 after confirmed publishes: none is lost", killed_behind_confirms),
    "delay": ("a message waits for its time (1 s), and those behind it do not", delayed),
    "dedup": ("what is published twice under one id is stored once", once),
    "dedup-kill": ("so over kill -9", once_over_a_kill),
    "bound": ("a queue for 10 messages refuses what is beyond", bounded),
    "pull": ("a client takes one message by a request, without a subscription", pulled),
    "mqtt-3.1.1": ("clients of MQTT 3.1.1 share the work and settle it", by_old_clients),
}

KILLING = ("kill-owed", "kill-owed-rest", "kill-confirmed", "dedup-kill")
"""Rows that have a broker of their own, which was killed by none before."""
