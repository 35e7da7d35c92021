"""The failures that queues of brokers are known for, each a test with real clients.

Those that FLUXMQ.md 5 tells of: 3, 4, 5, 6, 8, 9 and 11. Some are held elsewhere:

| what must not happen | is held by |
|---|---|
| a nacked or timed-out message is kept from a lone consumer | `test_queue_clients.py`: `test_a_lone_consumer_gets_what_it_failed_at_when_it_said`, `test_what_nobody_answers_comes_again` |
| `$nack` and `$reject` come too late, because the PUBACK of the delivery settled | `test_queue_clients.py`: `test_dead_letters_are_consumed_as_a_queue_is`; that a PUBACK alone is none, below |
| 3.1.1 consumes and cannot settle | `test_queue_clients.py`: `test_puback_settles_and_what_has_none_goes_to_another` |
| settings of retries, back-off, order, deadlines are accepted and do nothing | `test_queue_settings.py`, one by one |
| a failure of one key holds up others, or lets what is behind it overtake | `test_queue_clients.py`: `test_a_key_is_in_order_and_blocks_itself_alone`; `strict`, below |
| a settlement is acknowledged and a crash takes it back | `test_queue_clients.py`: `test_a_crash_between_delivery_and_ack_loses_nothing_and_repeats_nothing_settled` |
| deliveries of a session that lasts wait for it while it is away | `test_queue_clients.py`: `test_a_session_goes_on_with_its_queue` |
"""  # noqa: E501 - a table

import os
import re
import shutil

import pytest
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from conftest import wait_for
from headrace import limits
from pahoclient import V5, Client, drop, user_property
from test_queues import group, make, settle, shown

pytestmark = [pytest.mark.slow, pytest.mark.clients]

LARGE = 128 * 1024
NOT_KEPT = 0x97


@pytest.fixture
def name(shared, request):
    """A queue of the test's own, of which nothing rests for long."""
    own = re.sub(r"\W+", "-", request.node.name)
    quick = {"ack.deadline.ms": "1h", "retry.backoff.ms": 1, "retry.backoff.max.ms": 1}
    return make(shared, own, settings=quick)["name"]


def alter(node, queue, **settings):
    names = {key.replace("_", "."): value for key, value in settings.items()}
    status, answer = node.call("PATCH", f"/api/v1/queues/{queue}", {"settings": names})
    assert status == 200, answer


def connecting(**named):
    properties = Properties(PacketTypes.CONNECT)
    for key, value in named.items():
        setattr(properties, key, value)
    return properties


def attempt(message):
    return message.payload, int(user_property(message, "attempt"))


def letters(node, client, name):
    """Consumes the dead letters once there are some."""
    wait_for(lambda: node.call("GET", f"/api/v1/queues/{name}.dlq")[0] == 200)
    assert client.subscribe(f"$queue/{name}/$dlq") == 1


# --- redelivery -----------------------------------------------------------------------------------


def test_who_comes_back_under_its_id_is_given_what_it_failed_at_until_it_is_dead(shared, name):
    """By itself in its group, which nobody named."""
    alter(shared, name, retry_attempts=3)
    first = Client(shared, client_id=name)
    first.subscribe(f"$queue/{name}")
    first.publish(f"$queue/{name}", b"work")
    assert settle(first, first.receive(), "nack", name) == 0
    assert attempt(first.receive()) == (b"work", 2)
    drop(first.paho)  # the second failure
    with Client(shared, client_id=name) as second:
        second.subscribe(f"$queue/{name}")
        message = second.receive()
        assert attempt(message) == (b"work", 3)
        assert settle(second, message, "nack", name) == 0
        letters(shared, second, name)
        dead = second.receive()
        assert (dead.payload, user_property(dead, "reason")) == (b"work", "attempts")
        assert user_property(dead, "attempts") == "3"
        wait_for(lambda: shown(shared, name)["depth"] == 0)


def test_a_lone_consumer_that_never_answers_is_asked_again_until_it_is_dead(shared, name):
    alter(shared, name, ack_deadline_ms="50ms", retry_attempts=3)
    with Client(shared, client_id=name) as client:
        client.subscribe(f"$queue/{name}")
        client.publish(f"$queue/{name}", b"work")
        assert [attempt(client.receive())[1] for _ in range(3)] == [1, 2, 3]
        letters(shared, client, name)
        dead = client.receive()
        assert (user_property(dead, "reason"), user_property(dead, "reason-detail")) == (
            "attempts", "deadline",
        )  # fmt: skip


def test_what_is_late_goes_to_who_held_it_where_nobody_else_has_room(shared, name):
    terms = (("consumer-group", "g"), ("prefetch", "1"))
    with Client(shared) as full, Client(shared) as late:
        full.subscribe(f"$queue/{name}", 1, *terms)
        full.publish(f"$queue/{name}", b"theirs")
        assert full.receive().payload == b"theirs"
        alter(shared, name, ack_deadline_ms="100ms")
        late.subscribe(f"$queue/{name}", 1, *terms)
        late.publish(f"$queue/{name}", b"mine")
        assert attempt(late.receive()) == (b"mine", 1)
        alter(shared, name, ack_deadline_ms="1h")
        payload, tries = attempt(late.receive())
        assert (payload, tries > 1) == (b"mine", True)
        wait_for(lambda: group(shared, "g", name)["in_flight"] == 2)
        assert full.messages.empty()


# --- who is stuck ---------------------------------------------------------------------------------


def stuck_at(node, name, what):
    """A member of group g with messages of `name` and no room for more, for this reason."""
    receive_maximum = connecting(ReceiveMaximum=10 if what == "acknowledges nothing" else 1000)
    manual = {"manual_ack": what == "acknowledges nothing", "properties": receive_maximum}
    client = Client(node, V5, f"{name}-stuck", **manual)
    prefetch = "10" if what == "settles nothing" else "1000"
    terms = ("consumer-group", "g"), ("prefetch", prefetch)
    assert client.subscribe(f"$queue/{name}", 1, *terms) == 1
    if what == "reads nothing":
        client.paho.loop_stop()
    return client


@pytest.mark.parametrize("what", ["settles nothing", "acknowledges nothing", "reads nothing"])
def test_who_is_stuck_holds_up_no_publisher_no_member_and_no_queue(shared, name, what):
    """It keeps what it was given, and that comes to the others when it goes."""
    count = 100
    other = make(shared, f"{name}-other")["name"]
    stuck = stuck_at(shared, name, what)

    def held():
        members = group(shared, "g", name)["consumers"]
        return sum(each["open"] for each in members if each["client"] == f"{name}-stuck")

    with Client(shared) as producer, Client(shared) as worker:
        for number in range(count):
            payload = b"%d " % number + bytes(LARGE)
            assert producer.publish(f"$queue/{name}", payload) == 0
        worker.subscribe(f"$queue/{other}", 1, ("consumer-group", "g"))
        producer.publish(f"$queue/{other}", b"elsewhere")
        message = worker.receive()
        assert message.payload == b"elsewhere"
        assert settle(worker, message, queue=other) == 0

        worker.subscribe(f"$queue/{name}", 1, ("consumer-group", "g"))
        done = []

        def is_left_alone():
            """Works off what comes; whether nothing is left but what the stuck one has."""
            while not worker.messages.empty():
                message = worker.receive()
                assert settle(worker, message, queue=name) == 0
                done.append(message.payload)
            return shown(shared, name)["depth"] == held()

        wait_for(is_left_alone)
        kept = held()
        assert len(done) == count - kept
        assert kept in (range(1, count) if what == "reads nothing" else {10})
        drop(stuck.paho)
        wait_for(lambda: is_left_alone() and len(done) == count)
        assert len(set(done)) == count


def test_a_subscriber_that_acknowledges_nothing_holds_up_nobody_and_gets_all_later(shared):
    count = 300
    narrow = connecting(ReceiveMaximum=1)
    with (
        Client(shared) as producer,
        Client(shared) as other,
        Client(shared, V5, manual_ack=True, properties=narrow) as stuck,
    ):
        for each in (other, stuck):
            each.subscribe("pumps/+")
        for number in range(count):
            assert producer.publish("pumps/1", b"%d" % number) == 0
        assert [other.receive().payload for _ in range(count)] == [b"%d" % n for n in range(count)]
        for number in range(count):
            message = stuck.receive()
            assert message.payload == b"%d" % number
            stuck.puback(message)


# --- settling -------------------------------------------------------------------------------------


def test_who_did_not_ask_for_it_settles_nothing_by_puback(shared, name):
    """paho acknowledges each delivery at once, and then it falls."""
    careless = Client(shared)
    careless.subscribe(f"$queue/{name}", 1, ("consumer-group", "g"))
    for payload in (b"1", b"2", b"3"):
        careless.publish(f"$queue/{name}", payload)
    assert [careless.receive().payload for _ in range(3)] == [b"1", b"2", b"3"]
    for _ in range(2):  # the second is sent behind all PUBACKs
        careless.publish("elsewhere")
    assert group(shared, "g", name)["depth"] == 3
    drop(careless.paho)
    with Client(shared) as worker:
        worker.subscribe(f"$queue/{name}", 1, ("consumer-group", "g"))
        again = [worker.receive() for _ in range(3)]
        assert {attempt(each) for each in again} == {(b"1", 2), (b"2", 2), (b"3", 2)}


def test_a_dead_letter_that_cannot_be_stored_is_owed_until_it_can(memory_folder, start_node):
    """The disk is nearly full while the message dies."""
    margin = 48 * limits.MIB
    reserve = shutil.disk_usage(memory_folder).free - margin
    node = start_node(data=memory_folder / "data", HEADRACE_LOG__RESERVE_BYTES=str(reserve))
    make(node)
    make(node, "jobs.dlq")
    with Client(node, client_id="worker") as client:
        client.subscribe("$queue/jobs")
        client.publish("$queue/jobs", b"bad")
        message = client.receive()
        filler = memory_folder / "filler"
        with filler.open("wb") as file:
            os.posix_fallocate(file.fileno(), 0, margin - 8 * limits.MIB)
        wait_for(lambda: node.call("GET", "/ready")[1]["reason"])
        assert settle(client, message, "reject") == NOT_KEPT
        assert (shown(node)["depth"], shown(node, "jobs.dlq")["depth"]) == (1, 0)
        filler.unlink()
        wait_for(lambda: shown(node)["depth"] == 0)
        client.subscribe("$queue/jobs/$dlq")
        dead = client.receive()
        assert (dead.payload, user_property(dead, "reason")) == (b"bad", "rejected")
        assert client.messages.empty()


# --- order ----------------------------------------------------------------------------------------


def test_strict_order_holds_and_goes_on_over_failures_of_each_kind(shared, name):
    alter(shared, name, order="strict", ack_deadline_ms="100ms")
    terms = ("consumer-group", "g")
    first = Client(shared)
    first.subscribe(f"$queue/{name}", 1, terms)
    for payload in (b"1", b"2", b"3"):
        first.publish(f"$queue/{name}", payload)
    assert attempt(first.receive()) == (b"1", 1)
    message = first.receive()  # after its deadline
    alter(shared, name, ack_deadline_ms="1h")
    while True:  # as many deadlines as passed meanwhile, and a nack
        payload, tries = attempt(message)
        assert payload == b"1"
        if settle(first, message, "nack", name, ("delay", "20ms")) == 0:
            break
        message = first.receive()
    assert attempt(first.receive()) == (b"1", tries + 1)
    drop(first.paho)
    with Client(shared) as second:
        second.subscribe(f"$queue/{name}", 1, terms)
        for expected in ((b"1", tries + 2), (b"2", 1), (b"3", 1)):
            message = second.receive()
            assert attempt(message) == expected
            assert settle(second, message, queue=name) == 0
        assert shown(shared, name)["depth"] == 0
