"""Which connections a node takes: the machine of bounds per address, and listeners that use it."""

import contextlib
import random
import resource
import socket
import subprocess
import sys

import pytest

from conftest import environment, wait_for
from headrace import limits
from headrace.kernel.admission import ADDRESS_LIMIT, CONNECT_RATE, Admission, network
from rawclient import RawConnection, RawMqtt

pytestmark = pytest.mark.slow

PINGREQ, PINGRESP = b"\xc0\x00", b"\xd0\x00"


def test_a_bucket_gives_a_burst_and_then_the_rate():
    admission = Admission(connects_per_second=10)
    assert [admission.arrive("10.0.0.1", 0) for _ in range(12)] == [None] * 10 + [CONNECT_RATE] * 2
    assert admission.arrive("10.0.0.2", 0) is None, "another address has its own"
    assert admission.arrive("10.0.0.1", 99) == CONNECT_RATE
    assert admission.arrive("10.0.0.1", 100) is None
    assert admission.arrive("10.0.0.1", 100) == CONNECT_RATE
    assert [admission.arrive("10.0.0.1", 60_000) for _ in range(11)][-2:] == [None, CONNECT_RATE]


def test_who_hammers_is_let_in_at_the_rate():
    admission = Admission(connects_per_second=5)
    admitted = [ms for ms in range(0, 10_000, 10) if admission.arrive("10.0.0.1", ms) is None]
    assert len(admitted) in {54, 55}, "a burst of 5 and 5 a second"


def test_connections_at_a_time_are_counted_in_and_out():
    admission = Admission(connections_max=2)
    assert [admission.arrive("10.0.0.1", 0) for _ in range(3)] == [None, None, ADDRESS_LIMIT]
    admission.leave("10.0.0.1")
    assert admission.arrive("10.0.0.1", 0) is None
    assert admission.arrive("10.0.0.1", 0) == ADDRESS_LIMIT


def test_without_bounds_nothing_is_remembered():
    admission = Admission()
    assert admission.arrive("10.0.0.1", 0) is None
    admission.leave("10.0.0.1")
    assert len(admission) == 0


@pytest.mark.parametrize(
    ("host", "counted"),
    [
        ("192.0.2.1", "192.0.2.1"),
        ("2001:db8:0:1:2:3:4:5", "2001:db8:0:1::"),
        ("2001:db8:0:1::", "2001:db8:0:1::"),
        ("fe80::1%eth0", "fe80::"),
        ("::ffff:192.0.2.1", "192.0.2.1"),
    ],
)
def test_what_counts_as_one_address(host, counted):
    assert network(host) == counted


def test_what_a_wave_left_behind_goes_with_the_next():
    admission = Admission(connects_per_second=1, connections_max=1)
    for number in range(10_000):
        host = f"10.1.{number >> 8}.{number & 255}"
        assert admission.arrive(host, 0) is None
        admission.leave(host)
    for number in range(6000):
        assert admission.arrive(f"10.2.{number >> 8}.{number & 255}", 5000) is None
    assert len(admission) == 6000
    assert admission.arrive("10.2.0.0", 9000) == ADDRESS_LIMIT, "it is still connected"


def test_what_is_remembered_is_bounded(monkeypatch):
    monkeypatch.setattr(limits, "ADDRESSES_MAX", 100)
    admission = Admission(connects_per_second=1, connections_max=1)
    for number in range(1000):
        assert admission.arrive(f"10.0.{number >> 8}.{number & 255}", number) is None
        assert len(admission) <= 101
    admission.leave("10.0.0.0")  # long forgotten


def test_counts_match_a_model_whatever_comes():
    rng = random.Random(2)
    admission, open_now = Admission(connections_max=3), dict.fromkeys(map(str, range(9)), 0)
    for at in range(20_000):
        host = rng.choice(list(open_now))
        if open_now[host] and rng.random() < 0.5:
            admission.leave(host)
            open_now[host] -= 1
        else:
            refusal = admission.arrive(host, at)
            assert refusal == (ADDRESS_LIMIT if open_now[host] == 3 else None)
            open_now[host] += refusal is None


# --- on a node ------------------------------------------------------------------------------------


def refused(node, reason):
    name = f'headrace_connections_refused_total{{door="mqtt",reason="{reason}"}}'
    return node.metrics().get(name, 0)


def is_refused(node):
    with RawConnection(node.mqtt) as client, contextlib.suppress(ConnectionError):
        return client.socket.recv(1) == b""
    return True


@pytest.mark.setting("limits.connections_per_address")
def test_connections_of_one_address_are_bounded(start_node):
    node = start_node(HEADRACE_LIMITS__CONNECTIONS_PER_ADDRESS="2")
    with RawMqtt(node.mqtt, "a") as first, RawMqtt(node.mqtt, "b"):
        assert is_refused(node)
        assert refused(node, "address_limit") == 1
        first.socket.close()
        wait_for(lambda: node.metrics()['headrace_connections{door="mqtt"}'] == 1)
        RawMqtt(node.mqtt, "c").socket.close()


@pytest.mark.setting("limits.connects_per_address")
def test_connects_of_one_address_are_bounded(start_node):
    node = start_node(HEADRACE_LIMITS__CONNECTS_PER_ADDRESS="3")
    for number in range(3):
        RawMqtt(node.mqtt, f"c{number}").socket.close()
    tried = 0
    while not is_refused(node):  # another is let in each third of a second
        tried += 1
        assert tried < 1000
    assert refused(node, "connect_rate") >= 1
    assert "its address has its share client=127.0.0.1:" in node.log.read_text()


@pytest.mark.setting("limits.connections_overflow")
def test_connections_beyond_the_limit_can_wait_instead(start_node):
    node = start_node(
        HEADRACE_LIMITS__CONNECTIONS="2", HEADRACE_LIMITS__CONNECTIONS_OVERFLOW="wait"
    )
    first, second = RawMqtt(node.mqtt, "a"), RawMqtt(node.mqtt, "b")
    with RawConnection(node.mqtt) as third:
        third.socket.sendall(b"\x10\x0d\x00\x04MQTT\x04\x02\x00\x00\x00\x01c")
        third.socket.settimeout(0.5)
        with pytest.raises(TimeoutError):
            third.socket.recv(1)
        first.socket.close()
        third.socket.settimeout(30)
        assert third.read(4) == b"\x20\x02\x00\x00"
    second.socket.close()
    assert refused(node, "connections_limit") == 0


def test_a_storm_of_connects_is_served_whole_and_holds_nobody_up(start_node):
    node = start_node()
    with RawMqtt(node.mqtt, "before") as before, contextlib.ExitStack() as opened:
        storm = []
        for _ in range(900):  # as many as a test may have open, where the limit is 1,024
            each = opened.enter_context(socket.socket())
            each.settimeout(0)
            each.connect_ex(("127.0.0.1", node.mqtt))
            storm.append(each)
        before.socket.sendall(PINGREQ)
        assert before.read(2) == PINGRESP
        for number, each in enumerate(storm):
            each.settimeout(30)
            each.sendall(b"\x10\x10\x00\x04MQTT\x04\x02\x00\x00\x00\x04" + b"%04d" % number)
        assert all(each.recv(4) == b"\x20\x02\x00\x00" for each in storm)


def test_without_descriptors_accepting_pauses_and_goes_on(start_node):
    node = start_node()
    with RawMqtt(node.mqtt, "a") as client:
        in_use = len(list((node.data / f"/proc/{node.process.pid}/fd").iterdir()))
        resource.prlimit(node.process.pid, resource.RLIMIT_NOFILE, (in_use, 20_000))
        waiting = [socket.create_connection(("127.0.0.1", node.mqtt)) for _ in range(5)]
        for each in waiting:
            each.settimeout(30)
            each.sendall(b"\x10\x0d\x00\x04MQTT\x04\x02\x00\x00\x00\x01" + b"w")
        wait_for(lambda: "cannot accept: Too many open files" in node.log.read_text())
        client.socket.sendall(PINGREQ)
        assert client.read(2) == PINGRESP, "others are served meanwhile"
        resource.prlimit(node.process.pid, resource.RLIMIT_NOFILE, (20_000, 20_000))
        answers = [each.recv(4) for each in waiting]
        assert answers.count(b"\x20\x02\x00\x00") == 5
    for each in waiting:
        each.close()
    assert 1 <= refused(node, "accept_error") < 300, "one for each pause"


def test_a_short_accept_queue_of_the_kernel_is_told_of(tmp_path):
    one_port = "--mqtt 127.0.0.1:1 --kafka 127.0.0.1:1"  # so that it ends by itself
    serve = f"{sys.executable} -m headrace serve --data {tmp_path} {one_port}"
    script = f"ip link set lo up; echo 100 > /proc/sys/net/core/somaxconn; {serve}"
    done = subprocess.run(
        ["unshare", "--map-root-user", "--net", "bash", "-c", script],
        env=environment(), capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert "net.core.somaxconn, 100, cuts the accept queue of 4096 short" in done.stderr
