"""`headrace serve` as a process: start, ready line, stop, restart, refusals."""

import signal
import socket
import subprocess
import sys

import pytest

from conftest import ROOT, environment, headrace
from rawclient import RawConnection, RawMqtt

pytestmark = pytest.mark.slow

DOORS = ["mqtt", "kafka", "http"]
PINGREQ, PINGRESP = b"\xc0\x00", b"\xd0\x00"


def test_the_ready_line_names_every_door_the_folder_and_the_streams(tmp_path):
    arguments = ["--mqtt", "127.0.0.1:0", "--kafka", "127.0.0.1:0", "--http", "127.0.0.1:0"]
    with subprocess.Popen(
        [sys.executable, "-m", "headrace", "serve", *arguments],
        cwd=tmp_path,
        env=environment(),
        stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        line = process.stdout.readline()
        process.terminate()
        rest, log = process.communicate(timeout=60)
    assert process.returncode == 0
    assert line.startswith("headrace ready: mqtt 127.0.0.1:")
    assert line.endswith(", data headrace-data (1 stream)\n")
    assert rest == ""
    assert "descriptors: " in log
    assert (tmp_path / "headrace-data" / "streams" / "gpu-telemetry" / "stream.json").is_file()


def test_ready_as_json_is_one_object(broker):
    assert broker.ready["ready"] is True
    assert broker.ready["pid"] == broker.process.pid
    assert broker.ready["streams"] == 1
    assert broker.ready["data"] == str(broker.data)
    assert broker.stop() == 0
    assert broker.process.stdout.read() == b""


def test_a_node_without_streams_begins_with_the_telemetry_stream(broker):
    status, stream = broker.call("GET", "/api/v1/streams/gpu-telemetry")
    assert status == 200
    assert (stream["filters"], stream["key"]) == (["dcgm/#"], "level:3")
    assert len(stream["partitions"]) == 12


def test_what_a_node_keeps_for_itself_is_no_stream(start_node):
    """Whether it begins with the telemetry stream does not hang on its own logs."""
    node = start_node(HEADRACE_NODE__DEFAULT_STREAM="false")
    node.stop()
    assert any(node.data.glob("streams/__*/stream.json"))
    assert start_node.again(node, HEADRACE_NODE__DEFAULT_STREAM="true").ready["streams"] == 1


@pytest.mark.setting("node.default_stream")
def test_the_telemetry_stream_can_be_declined_and_does_not_return(start_node):
    node = start_node(HEADRACE_NODE__DEFAULT_STREAM="false")
    assert node.ready["streams"] == 0
    node.create_stream("mine")
    node.stop()
    assert start_node.again(node).ready["streams"] == 1


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_the_node_in_order(broker, number):
    with RawMqtt(broker.mqtt, "c") as client:
        broker.process.send_signal(number)
        assert client.socket.recv(16) == b""
    assert broker.process.wait(60) == 0
    log = broker.log.read_text()
    assert "stopping" in log
    assert "stopped" in log


def test_a_stop_tells_5_0_clients_why(broker):
    with RawConnection(broker.mqtt) as client:
        client.socket.sendall(b"\x10\x0e\x00\x04MQTT\x05\x02\x00\x00\x00\x00\x01c")
        assert client.read(1) == b"\x20"
        client.read(client.read(1)[0])
        broker.process.terminate()
        assert client.read(1) == b"\xe0", "DISCONNECT"
        body = client.read(client.read(1)[0])
        assert body[0] == 0x8B, "server shutting down"
        assert client.socket.recv(1) == b""
    assert broker.process.wait(60) == 0


def test_what_was_published_before_the_stop_is_acknowledged_and_kept(start_node):
    node = start_node()
    node.create_stream("all", filters=["#"])
    with RawMqtt(node.mqtt, "c") as client:
        for packet_id in range(1, 501):
            client.publish("t", b"x" * 100, packet_id)
        assert client.puback() == 1
        node.process.terminate()
        received = b"".join(iter(lambda: client.socket.recv(65536), b""))
    assert node.process.wait(60) == 0
    acknowledged = 1 + len(received) // len(b"\x40\x02\0\0")
    assert sum(start_node.again(node).ends("all")) == acknowledged


def test_a_second_signal_ends_the_node_at_once(broker):
    broker.process.send_signal(signal.SIGSTOP)
    broker.process.send_signal(signal.SIGTERM)
    broker.process.send_signal(signal.SIGINT)
    broker.process.send_signal(signal.SIGCONT)
    broker.exit_codes = {1}
    assert broker.process.wait(60) == 1


def test_acknowledged_messages_survive_sigkill_and_the_ports_are_bound_again_at_once(start_node):
    node = start_node()
    node.create_stream("all", partitions=3, filters=["t/#"], settings={"max.message.bytes": 9999})
    with RawMqtt(node.mqtt, "c") as client:
        for packet_id in range(1, 301):
            client.publish(f"t/{packet_id % 7}", b"payload", packet_id)
        assert [client.puback() for _ in range(300)] == list(range(1, 301))
        ends = node.ends("all")
        node.kill()
    again = start_node.again(node)
    assert (again.mqtt, again.kafka, again.http) == (node.mqtt, node.kafka, node.http)
    assert again.ends("all") == ends
    assert sum(ends) == 300
    _, stream = again.call("GET", "/api/v1/streams/all")
    assert stream["settings"] == {"max.message.bytes": 9999}
    assert "the last stop was not orderly" in again.log.read_text()


def test_an_orderly_stop_needs_no_recovery(start_node):
    node = start_node()
    assert node.stop() == 0
    again = start_node.again(node)
    assert "not orderly" not in again.log.read_text()


def test_two_nodes_on_one_folder_are_refused_with_the_pid(broker):
    arguments = [part for door in DOORS for part in (f"--{door}", "127.0.0.1:0")]
    second = headrace("serve", "--data", str(broker.data), *arguments)
    assert second.returncode == 1
    assert str(broker.process.pid) in second.stderr
    assert "Traceback" not in second.stderr
    assert broker.call("GET", "/ready")[0] == 200


@pytest.mark.parametrize("door", DOORS)
def test_a_port_in_use_is_one_line(broker, tmp_path, door):
    arguments = [
        part
        for each in DOORS
        for part in (f"--{each}", f"127.0.0.1:{getattr(broker, door) if each == door else 0}")
    ]
    second = headrace("serve", "--data", str(tmp_path / "other"), *arguments)
    assert second.returncode == 1
    (line,) = second.stderr.splitlines()
    address = f"127.0.0.1:{getattr(broker, door)}"
    assert line.startswith(
        f"headrace: --{door}: cannot listen on {address}: Address already in use; "
    )
    assert not (tmp_path / "other").exists()


def test_an_address_that_this_machine_does_not_have_is_told(tmp_path):
    args = ["--mqtt", "127.0.0.1:0", "--frame", "192.0.2.1:0", "--http", "127.0.0.1:0"]
    rules = {"HEADRACE_ACCESS__NO_MATCH": "allow"}
    (tmp_path / "rules.toml").write_text('[[access.rules]]\nallow = ["connect"]\n')
    config = ["--config", str(tmp_path / "rules.toml")]
    refused = headrace("serve", "--data", str(tmp_path / "data"), *config, *args, **rules)
    assert refused.returncode == 1
    told = (
        "--frame: cannot listen on 192.0.2.1:0: Cannot assign requested address; choose an address"
    )
    assert told in refused.stderr


def test_two_doors_on_one_port_are_one_line(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    same = f"127.0.0.1:{port}"
    refused = headrace(
        "serve", "--data", str(tmp_path), "--mqtt", same, "--kafka", same, "--http", "127.0.0.1:0"
    )
    assert refused.returncode == 1
    assert f"cannot listen on {same}: Address already in use" in refused.stderr
    assert "Traceback" not in refused.stderr


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize(
    "host",
    [
        "0.0.0.0",
        *(
            pytest.param(name, marks=pytest.mark.slow)
            for name in ("[::]", "192.0.2.1", "example.org")
        ),
    ],
)
def test_a_bind_wider_than_loopback_is_refused(tmp_path, door, host):
    refused = headrace("serve", "--data", str(tmp_path), f"--{door}", f"{host}:1")
    assert refused.returncode == 2
    assert len(refused.stderr.splitlines()) <= 3
    assert f"bind it to loopback: --{door} 127.0.0.1:1" in refused.stderr


@pytest.mark.parametrize(
    "arguments",
    [["--mqtt", "1883"], ["--config", "/no/file.toml"], ["--nope"], ["extra"], ["--http", "a:b"]],
)
def test_wrong_use_is_exit_2_in_three_lines(arguments):
    refused = headrace("serve", *arguments)
    assert refused.returncode == 2
    assert 1 <= len(refused.stderr.splitlines()) <= 3
    assert refused.stdout == ""


def test_a_folder_that_cannot_be_made_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    arguments = [part for door in DOORS for part in (f"--{door}", "127.0.0.1:0")]
    refused = headrace("serve", "--data", str(tmp_path / "file" / "data"), *arguments)
    assert refused.returncode == 2
    assert f"cannot make the data folder {tmp_path}/file/data" in refused.stderr


def test_what_a_node_makes_is_for_its_user_and_group(broker):
    broker.create_stream("readings", partitions=2)
    broker.call("POST", "/api/v1/publish", {"topic": "dcgm/a", "payload": "1"})
    broker.stop()
    made = [broker.data, *broker.data.rglob("*")]
    assert len(made) > 10
    assert {path.stat().st_mode & 0o777 for path in made if path.is_dir()} == {0o750}
    assert {path.stat().st_mode & 0o777 for path in made if path.is_file()} == {0o640}


@pytest.mark.parametrize("module", [None, "__version__ = 'of another'\n"])
def test_a_compiled_module_that_does_not_fit_is_named_with_the_remedy(tmp_path, module):
    package = tmp_path / "headrace"
    package.mkdir()
    for each in (ROOT / "src/headrace").iterdir():
        if not each.name.startswith("_native"):
            (package / each.name).symlink_to(each)
    if module is not None:
        (package / "_native.py").write_text(module)
    ended = subprocess.run(
        [sys.executable, "-m", "headrace", "streams", "list"],
        capture_output=True, check=False, env=environment() | {"PYTHONPATH": str(tmp_path)},
        text=True,
    )  # fmt: skip
    assert ended.returncode == 1
    what, remedy = ended.stderr.splitlines()
    assert what.startswith("headrace: the compiled module, ")
    assert (str(package) if module else "which is not there") in what
    assert remedy.startswith("build it anew: ")


def test_help_teaches():
    for command in (
        ["--help"],
        ["serve", "--help"],
        ["streams", "--help"],
        ["streams", "create", "-h"],
    ):
        shown = headrace(*command)
        assert shown.returncode == 0
        assert "headrace " in shown.stdout


BROKER = {"aiohttp", "headrace.wire.kafka.apis", "pydantic", "pyspark", "uvloop"}


@pytest.mark.parametrize(
    ("command", "absent"),
    [
        ("--help", BROKER | {"asyncio", "rich", "paho"}),
        ("streams list", BROKER | {"asyncio", "paho"}),
        ("queues list", BROKER),
        ("pub", BROKER),
    ],
)
def test_a_command_imports_neither_a_broker_nor_what_it_does_not_use(command, absent):
    """Every start of it would take several times as long."""
    code = "import sys, headrace.cli as c\ntry: c.main()\nexcept SystemExit: print(*sys.modules)"
    shown = subprocess.run(
        [sys.executable, "-c", code, *command.split(), "--help"],
        capture_output=True, check=True, env=environment(), text=True,
    )  # fmt: skip
    assert not absent & set(shown.stdout.splitlines()[-1].split())


def test_version():
    assert headrace("--version").stdout.startswith("headrace 0.")
