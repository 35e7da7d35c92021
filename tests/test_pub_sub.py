"""`headrace pub` and `headrace sub`, beside the clients whose options they have."""

import base64
import json
import os
import pty
import re
import socket
import struct
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest

from conftest import RunningNode, environment, headrace, wait_for
from headrace.cli import mqtt_format
from headrace.client.mqtt import Connection, Target
from headrace.errors import MqttError
from secure import secure_settings

pytestmark = pytest.mark.slow

SECONDS = 60
MOSQUITTO = {"pub": ["mosquitto_pub", "-V", "5"], "sub": ["mosquitto_sub", "-V", "5"]}
OURS = {kind: [sys.executable, "-m", "headrace", kind] for kind in MOSQUITTO}


@pytest.fixture(scope="module")
def node(tmp_path_factory, server):
    """With every listener."""
    folder = tmp_path_factory.mktemp("pubsub")
    settings = secure_settings(
        server,
        HEADRACE_MQTT__UNIX_PATH=str(folder / "mqtt.sock"),
        HEADRACE_MQTT__PACKET_BYTES="64KiB",
    )
    node = RunningNode(folder / "data", **settings)
    yield node
    node.close()


def port(node, listener):
    return node.ready[listener].rpartition(":")[2]


def run(command, *args, given=b""):
    return subprocess.run(
        [*command, *args], input=given, capture_output=True, check=False, timeout=SECONDS,
        env=environment(),
    )  # fmt: skip


def pub(node, *args, given=b""):
    done = run(OURS["pub"], "-p", str(node.mqtt), *args, given=given)
    assert done.returncode == 0, done.stderr
    return done


def retained_topics(node):
    _, page = node.call("GET", "/api/v1/retained?limit=1000")
    return {each["topic"] for each in page["messages"]}


@contextmanager
def listening(node, command, client, *args):
    """A subscriber that has subscribed."""
    process = subprocess.Popen(
        [*command, "-p", str(node.mqtt), "-i", client, *args],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment(),
    )  # fmt: skip
    try:
        path = f"/api/v1/sessions/{client}"
        wait_for(lambda: node.call("GET", path)[1].get("subscriptions"), SECONDS)
        yield process
    finally:
        process.kill()
        process.communicate()


@pytest.mark.slow
@pytest.mark.parametrize(
    "args",
    [
        (),
        ("-v",),
        ("-N",),
        ("-N", "-v"),
        ("-F", r"%t|%p|%q|%r|%l|%x|%X|%%|\t\n"),
        ("-F", "%20t|%-20t|%06l|%6l|%-6l|%8p|%-8p|%.2p|%10.3t|"),
        ("-F", "%C|%D|%E|%F|%R|%P|@@"),
        ("-F", "@Y-@m-@d"),
        ("-T", "s/2"),
        ("-R",),
    ],
    ids=" ".join,
)
def test_what_is_printed_is_what_mosquitto_sub_prints(node, args):
    topic = f"same/{len(args)}{len(args[-1]) if args else 0}"
    kept = f"{topic}/0"
    pub(node, "-t", kept, "-m", "kept", "-r", "-q", "1")
    args = tuple(f"{topic}/2" if each == "s/2" else each for each in args)
    common = ("-t", f"{topic}/#", *args, "-W", "30")
    expected = 4 - ("-T" in args) - ("-R" in args)
    with (
        listening(node, MOSQUITTO["sub"], "theirs", *common, "-C", str(expected)) as theirs,
        listening(node, OURS["sub"], "ours", *common, "-C", str(expected)) as ours,
    ):
        pub(node, "-t", f"{topic}/1", "-m", "hällo", "-q", "1")
        given = "content-type text response-topic back correlation-data corr"
        given = [*given.split(), "payload-format-indicator", "1"]
        pairs = zip(given[::2], given[1::2], strict=True)
        properties = [word for name, value in pairs for word in ("-D", "publish", name, value)]
        properties += ["-D", "publish", "user-property", "k", "v"]
        pub(node, "-t", f"{topic}/2", "-m", '{"a": 1}', *properties)
        pub(node, "-t", f"{topic}/3", "-m", "last")
        outputs = [each.communicate(timeout=SECONDS) for each in (theirs, ours)]
    assert outputs[1] == outputs[0]
    assert outputs[0][0]
    assert ours.returncode == theirs.returncode == 0


def test_json_has_what_mosquitto_s_has(node):
    args = ("-t", "json/#", "-F", "%j", "-C", "1", "-q", "1")
    with (
        listening(node, MOSQUITTO["sub"], "theirs", *args) as theirs,
        listening(node, OURS["sub"], "ours", *args) as ours,
    ):
        pub(node, "-t", "json/1", "-m", "21.5", "-q", "1")
        objects = [json.loads(each.communicate(timeout=SECONDS)[0]) for each in (theirs, ours)]
    for each in objects:
        assert each.pop("tst")
    assert objects[0] == objects[1]
    assert objects[1]["payload"] == "21.5"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("args", "given", "qos"),
    [
        (("-m", "hello"), b"", "0"),
        (("-m", ""), b"", "1"),
        (("-n",), b"", "1"),
        (("-s",), b"two\nlines\n", "1"),
        (("-l",), b"a\n\nb\nwithout an end", "0"),
        (("-l",), b"a\n\nb\nwithout an end", "1"),
        (("-l",), b"a\n\nb\nwithout an end", "2"),
        (("-f", "payload.bin"), b"", "1"),
        (("-m", "again", "--repeat", "3"), b"", "2"),
        (("-m", "kept", "-r"), b"", "0"),
    ],
    ids=str,
)
def test_what_is_published_is_what_mosquitto_pub_publishes(node, tmp_path, args, given, qos):
    (tmp_path / "payload.bin").write_bytes(b"\x00\xff\n")
    args = [str(tmp_path / each) if each == "payload.bin" else each for each in args]
    seen = []
    with listening(node, OURS["sub"], "w", "-t", "p", "-t", "end", "-q", "2", "-F", "%q %l %x",
                   "--retain-as-published") as watcher:  # fmt: skip
        for command in (MOSQUITTO["pub"], OURS["pub"]):
            done = run(command, "-p", str(node.mqtt), "-t", "p", "-q", qos, *args, given=given)
            assert (done.returncode, done.stderr) == (0, b"")
            pub(node, "-t", "end", "-m", "end")
            lines = []
            while not lines or lines[-1] != b"0 3 656e64\n":
                lines.append(watcher.stdout.readline())
            seen.append(lines)
    assert seen[0] == seen[1]
    assert len(seen[0]) > 1
    node.call("DELETE", "/api/v1/retained?filter=p")


@pytest.mark.slow
@pytest.mark.parametrize(
    "how", ["tcp", "v311", "v31", "ws", "unix", "tls", "wss", "url", "tls-url", "wss-url", "mqtt"]
)
def test_every_way_to_a_broker(node, authority, how):
    trust = ["--cafile", str(authority.file)]
    address = ["-p", str(node.mqtt)]
    ways = {
        "tcp": address,
        "v311": [*address, "-V", "mqttv311"],
        "v31": [*address, "-V", "31"],
        "ws": ["--ws", "-p", port(node, "ws")],
        "unix": ["--unix", node.ready["unix"]],
        "tls": ["-h", "localhost", "-p", port(node, "mqtts"), *trust],
        "wss": ["-h", "localhost", "--ws", "-p", port(node, "wss"), *trust],
        "url": ["-L", f"mqtt://127.0.0.1:{node.mqtt}/way/url"],
        "tls-url": ["-L", f"mqtts://localhost:{port(node, 'mqtts')}/way/tls-url", *trust],
        "wss-url": ["-L", f"wss://localhost:{port(node, 'wss')}/way/wss-url", *trust],
        "mqtt": ["--mqtt", f"127.0.0.1:{node.mqtt}"],
    }
    topic = [] if "url" in how else ["-t", f"way/{how}"]
    done = run(OURS["pub"], *ways[how], *topic, "-m", how, "-q", "1", "-r")
    assert (done.returncode, done.stderr) == (0, b"")
    done = run(OURS["sub"], *ways[how], *topic, "-q", "1", "-C", "1", "-F", "%r %p")
    assert (done.returncode, done.stdout) == (0, f"1 {how}\n".encode()), done.stderr


def test_json_is_spread_over_lines(node):
    topic = ["-p", str(node.mqtt), "-t", "pretty"]
    assert run(OURS["pub"], *topic, "-m", '{"a": 1}', "-r", "-q", "1").returncode == 0
    for how in (["--json"], ["-F", "%j"], ["-F", "%J"]):
        lines = [
            run(OURS["sub"], *topic, "-C", "1", *how, *more).stdout.count(b"\n")
            for more in ([], ["--pretty"])
        ]
        assert lines[0] == 1
        assert lines[1] > 5
    node.call("DELETE", "/api/v1/retained?filter=pretty")


def test_tls_is_as_asked(node, authority):
    trust = ["-h", "localhost", "-p", port(node, "mqtts"), "--cafile", str(authority.file)]
    message = ["-t", "a", "-m", "x", "-q", "1", "--tls-version", "tlsv1.2"]
    for how in (["--ciphers", "ECDHE-RSA-AES256-GCM-SHA384:ECDHE-ECDSA-AES256-GCM-SHA384"],
                ["--tls-alpn", "mqtt"]):  # fmt: skip
        done = run(OURS["pub"], *trust, *message, *how)
        assert (done.returncode, done.stderr) == (0, b"")
    done = run(OURS["pub"], *trust, *message, "--ciphers", "ROT13")
    assert done.returncode == 2
    assert b"--ciphers: openssl knows none of these" in done.stderr


def test_a_certificate_is_looked_at(node, authority):
    address = ["-h", "localhost", "-p", port(node, "mqtts"), "-t", "a", "-m", "x"]
    done = run(OURS["pub"], *address, "--tls")
    assert done.returncode == 1
    assert b"name its authority with --cafile" in done.stderr
    done = run(OURS["pub"], "-h", "127.0.0.2", "-p", port(node, "mqtts"), "-t", "a", "-m", "x",
               "--cafile", str(authority.file))  # fmt: skip
    assert done.returncode == 1, "no certificate for that, or nobody there"


def test_pub_tells_how_long_acknowledgements_took(node):
    done = pub(node, "-t", "count", "-m", "x", "-q", "1", "--repeat", "50", "-M", "7", "--json")
    told = json.loads(done.stdout)
    assert (told["published"], told["acknowledged"]) == (50, 50)
    latency = told["latency_ms"]
    assert 0 < latency["p50"] <= latency["p99"] <= latency["max"] <= told["seconds"] * 1000


def test_a_message_that_the_broker_does_not_take_is_not_sent(node, tmp_path):
    (tmp_path / "large").write_bytes(b"x" * 70_000)
    done = run(OURS["pub"], "-p", str(node.mqtt), "-t", "a", "-f", str(tmp_path / "large"))
    assert done.returncode == 1
    assert b"larger than the 65,536" in done.stderr
    assert len(done.stderr.splitlines()) <= 3


@pytest.mark.parametrize("qos", ["1", "2"])
def test_a_message_that_the_broker_refuses_has_failed(node, qos):
    done = run(OURS["pub"], "-p", str(node.mqtt), "-t", "$SYS/x", "-q", qos, "-l", "--json",
               "-M", "1", given=b"1\n2\n")  # fmt: skip
    assert (done.returncode, done.stdout) == (1, b"")
    assert b"refuses a message for $SYS/x: not authorized (0x87)" in done.stderr
    assert done.stderr.splitlines()[1] == b"0 of 1 messages were acknowledged"


def test_what_a_session_is_owed_comes_and_no_more_is_taken_than_was_asked_for(node):
    session = ["-i", "worker", "-c", "-q", "1", "-t", "jobs/#"]
    assert run(OURS["sub"], "-p", str(node.mqtt), *session, "-E").returncode == 0
    pub(node, "-t", "jobs/1", "-q", "1", "-l", given=b"1\n2\n3\n4\n5\n")
    got = [
        run(OURS["sub"], "-p", str(node.mqtt), *session, "-C", count).stdout
        for count in ("1", "3", "1")
    ]
    assert got == [b"1\n", b"2\n3\n4\n", b"5\n"]
    assert node.call("GET", "/api/v1/sessions/worker")[1]["queued_messages"] == 0


def test_retained_messages_alone_and_their_removal(node):
    for number in range(3):
        pub(node, "-t", f"old/{number}", "-m", str(number), "-r", "-q", "1")
    options = ["-p", str(node.mqtt), "-t", "old/#", "-v"]
    with listening(node, OURS["sub"], "only", "-t", "old/#", "-v", "--retained-only") as only:
        pub(node, "-t", "old/new", "-m", "live")
        assert only.communicate(timeout=SECONDS)[0] == b"old/0 0\nold/1 1\nold/2 2\n"
    done = run(OURS["sub"], *options, "--remove-retained", "-T", "old/2", "-C", "2", "-W", "20")
    assert done.stdout == b"old/0 0\nold/1 1\n"
    wait_for(lambda: {each for each in retained_topics(node) if "old" in each} == {"old/2"})
    never = run(OURS["sub"], *options, "--retain-handling", "never", "-C", "1", "-W", "1")
    assert (never.returncode, never.stdout) == (1, b"")
    assert never.stderr == b"headrace: 0 of 1 messages came within 1 s\n"


def test_a_will_user_properties_and_a_session_s_expiry_reach_the_broker(node):
    with listening(
        node, OURS["sub"], "mortal", "-t", "x", "--will-topic", "gone", "--will-payload", "bye",
        "--will-qos", "1", "--will-retain", "-x", "17", "-k", "33",
        "-D", "will", "will-delay-interval", "3", "-D", "connect", "receive-maximum", "5",
        "-D", "subscribe", "subscription-identifier", "9",
    ):  # fmt: skip
        shown = node.call("GET", "/api/v1/sessions/mortal")[1]
    assert shown["expiry_seconds"] == 17
    assert shown["filters"][0]["identifier"] == 9
    assert shown["connection"]["keep_alive_seconds"] == 33
    assert shown["connection"]["receive_maximum"] == 5
    will = {key: shown["will"][key] for key in ("topic", "qos", "retain", "bytes", "delay_seconds")}
    assert will == {"topic": "gone", "qos": 1, "retain": True, "bytes": 3, "delay_seconds": 3}


def test_a_signal_is_a_normal_end(node):
    with listening(node, OURS["sub"], "ends", "-t", "x") as process:
        process.terminate()
        assert process.wait(SECONDS) == 0
    wait_for(lambda: node.call("GET", "/api/v1/sessions/ends")[0] == 404)


def test_a_connection_that_breaks_is_made_again(node):
    with listening(node, OURS["sub"], "thrown", "-t", "x", "-C", "2") as process:
        pub(node, "-t", "x", "-m", "1")
        assert process.stdout.readline() == b"1\n"
        node.call("POST", "/api/v1/sessions/thrown/disconnect")
        told = process.stderr.readline()
        assert b"administrative action (0x98); trying again in 1 s" in told
        path = "/api/v1/sessions/thrown"
        wait_for(lambda: node.call("GET", path)[1].get("subscriptions"), SECONDS)
        pub(node, "-t", "x", "-m", "2")
        assert process.communicate(timeout=SECONDS) == (b"2\n", b"")
    assert process.returncode == 0


def test_a_connection_that_breaks_before_a_write_can_be_made_again():
    with socket.create_server(("127.0.0.1", 0)) as broker, ThreadPoolExecutor(1) as pool:
        broker.settimeout(SECONDS)
        welcomed = pool.submit(_welcomed, broker)
        host, port = broker.getsockname()
        connection = Connection(Target(host=host, port=port))
        connection.connect()
        peer = welcomed.result()
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        peer.close()  # resets it
        connection.publish("a", b"x", 1, retain=False)
        with pytest.raises(MqttError, match="ended the connection") as caught:
            connection.step(SECONDS)
        assert caught.value.retriable
        again = pool.submit(_welcomed, broker)
        connection.connect()
        connection.step(0.0)
        again.result().close()


def _welcomed(broker):
    """A client's connection, its CONNECT answered with success."""
    peer, _ = broker.accept()
    assert peer.recv(4096)
    peer.sendall(b"\x20\x03\x00\x00\x00")
    return peer


def test_a_broker_that_is_away_for_a_while_is_waited_for(start_node):
    node = start_node()
    with listening(node, OURS["sub"], "patient", "-t", "x", "-C", "1") as process:
        assert node.stop() == 0
        assert b"server shutting down (0x8b)" in process.stderr.readline()
        again = start_node.again(node)
        wait_for(lambda: again.call("GET", "/api/v1/sessions/patient")[0] == 200, SECONDS)
        path = "/api/v1/sessions/patient"
        wait_for(lambda: again.call("GET", path)[1].get("subscriptions"), SECONDS)
        pub(again, "-t", "x", "-m", "back")
        assert process.communicate(timeout=SECONDS)[0] == b"back\n"


def test_who_is_taken_over_does_not_come_back(node):
    with (
        listening(node, OURS["sub"], "twice", "-t", "x") as first,
        listening(node, OURS["sub"], "twice", "-t", "x"),
    ):
        _, told = first.communicate(timeout=SECONDS)
    assert first.returncode == 1
    assert b"ended the connection: session taken over (0x8e)" in told


def test_pub_says_how_much_was_acknowledged_where_the_broker_goes_away(start_node):
    node = start_node()
    command = [*OURS["pub"], "-p", str(node.mqtt), "-t", "a", "-q", "1", "-l", "-i"]
    process, idle = (
        subprocess.Popen(
            [*command, client], stdin=subprocess.PIPE, stderr=subprocess.PIPE, env=environment()
        )
        for client in ("p", "idle")
    )
    wait_for(lambda: node.call("GET", "/api/v1/sessions/idle")[0] == 200, SECONDS)
    process.stdin.write(b"1\n2\n")
    process.stdin.flush()
    wait_for(lambda: node.metrics()["headrace_mqtt_messages_received_total"] == 2, SECONDS)
    assert node.stop() == 0
    _, told = process.communicate(timeout=SECONDS)
    assert process.returncode == 1
    assert told.splitlines()[1] == b"2 of 2 messages were acknowledged"
    _, told = idle.communicate(timeout=SECONDS)
    assert idle.returncode == 1
    assert b"acknowledged" not in told


@pytest.mark.parametrize(
    ("args", "code", "told"),
    [
        (["pub", "-m", "x"], 2, "a topic is missing"),
        (["pub", "-t", "a"], 2, "give one of -m, -f, -l, -s and -n"),
        (["pub", "-t", "a", "-m", "x", "-n"], 2, "give one of"),
        (["pub", "-t", "a/+", "-m", "x"], 2, "+ and # are for subscriptions"),
        (["sub", "-t", ""], 2, '-t: topic "": the topic is empty'),
        (["sub", "-t", "a", "-t", "a/#/b"], 2, '-t: topic "a/#/b": # must stand alone'),
        (["sub", "-t", "a", "-U", "a+"], 2, '-U: topic "a+": + must stand alone'),
        (["sub", "-t", "a", "-T", ""], 2, "-T: "),
        (["pub", "-t", "a", "-m", "x", "-q", "3"], 2, "3 is not in the range"),
        (
            ["pub", "-t", "a", "-m", "x", "-D", "publish", "colour", "red"],
            2,
            "no property 'colour'",
        ),
        (["pub", "-t", "a", "-m", "x", "-D", "puback", "content-type", "x"], 2, "packets are"),
        (["pub", "-t", "a", "-m", "x", "-D", "connect", "content-type", "x"], 2, "-D connect"),
        (["pub", "-t", "a", "-m", "x", "-D", "publish"], 2, "PACKET PROPERTY VALUE"),
        (
            ["pub", "-t", "a", "-m", "x", "-D", "publish", "message-expiry-interval", "9" * 12],
            2,
            "larger than the protocol",
        ),
        (["pub", "-t", "a\udcff", "-m", "x"], 2, "topic must be UTF-8; got 'a\\udcff'"),
        (["pub", "-t", "a", "-f", "/dev/zero"], 2, "longer than any message of MQTT"),
        (["pub", "-t", "a", "-m", "x", "-V", "311", "-x", "1"], 2, "of MQTT 5.0"),
        (["pub", "-t", "a", "-m", "x", "-i", "a", "-I", "b"], 2, "give one of them"),
        (["pub", "-t", "a", "-m", "x", "-L", "http://x/y"], 2, "must be mqtt://"),
        (["pub", "-t", "a", "-m", "x", "--cert", "README.md"], 2, "belong together"),
        (["pub", "-t", "a", "-m", "x", "--will-payload", "x"], 2, "a will needs a topic"),
        (["pub", "-t", "a", "-m", "x", "-p", "1"], 1, "start one with: headrace serve"),
        (["sub"], 2, "a topic is missing"),
        (["sub", "-t", "a", "-c"], 2, "name it with -i"),
        (["sub", "-t", "a", "-W", "nan"], 2, "'nan' is no number"),
        (["sub", "-t", "a", "-v", "--json"], 2, "give one of them"),
        (["sub", "-t", "a", "-F", "%y"], 2, "knows no %y"),
        (["sub", "-t", "a", "-F", "x%"], 2, "ends in the middle"),
        (["sub", "-t", "a", "-p", "1"], 1, "no broker answers at 127.0.0.1:1"),
    ],
    ids=str,
)
def test_wrong_use_names_the_remedy(args, code, told):
    done = headrace(*args)
    assert done.returncode == code
    assert told in done.stderr
    assert len(done.stderr.splitlines()) <= 3
    assert done.stdout == ""


def test_what_mqtt_has_no_room_for_is_wrong_use():
    long = "x" * 65_536
    for args in (["-i", long], ["--will-topic", "w", "--will-payload", long], ["-u", long]):
        done = headrace("pub", "-t", "a", "-m", "x", *args)
        assert done.returncode == 2
        assert "65,535" in done.stderr


def test_a_message_in_another_encoding_is_published_byte_for_byte(node):
    pub(node, "-t", "latin/1", "-r", "-q", "1", "-m", b"gr\xfcn")
    _, message = node.call("GET", "/api/v1/retained/topics/latin%2F1")
    assert base64.b64decode(message["payload_base64"]) == b"gr\xfcn"


@pytest.mark.parametrize(
    ("command", "args"),
    [
        ("sub", ["-t", "hostile", "-C", "1"]),
        ("sub", ["-t", "hostile", "-C", "1", "-v"]),
        ("sub", ["-t", "hostile", "-C", "1", "-F", "%p"]),
        ("retained", ["show", "hostile"]),
    ],
)
def test_a_terminal_does_not_obey_a_message(node, command, args):
    payload = b"a\x1b[2J\x07\xc2\x9b1m\r\n\tb"
    pub(node, "-t", "hostile", "-r", "-q", "1", "-m", payload)
    where = ["--url", node.url] if command == "retained" else ["-p", str(node.mqtt)]
    ours = [sys.executable, "-m", "headrace", command, *args, *where]
    assert run(ours).stdout.removeprefix(b"hostile ").removesuffix(b"\n") == payload
    master, slave = pty.openpty()
    done = subprocess.run(ours, stdout=slave, check=False, timeout=SECONDS, env=environment())
    assert done.returncode == 0
    shown = os.read(master, 4096)
    os.close(slave)
    os.close(master)
    assert rb"a\x1b[2J\x07\x9b1m\x0d" in shown
    assert not set(shown) & set(b"\x1b\x07\x9b")


def test_help_has_every_letter_of_a_format():
    text = headrace("sub", "--help").stdout
    letters = {*mqtt_format._TELLS, *mqtt_format._PROPERTIES, *"IUPjJ"} - {"A"}
    assert letters <= set(re.findall(r"%(\S)", text))


def test_a_refusal_and_a_wrong_port_are_told_in_words(node):
    refused = run(OURS["pub"], "-p", str(node.mqtt), "-t", "$SYS/x", "-m", "x", "-q", "1")
    assert refused.returncode == 1
    assert b"refuses a message for $SYS/x: not authorized (0x87)" in refused.stderr
    lost = run(OURS["sub"], "-p", str(node.http), "-t", "x", "-W", "30")
    assert lost.returncode == 1
    assert b"spoke no MQTT; is that a port of its MQTT doors?" in lost.stderr
