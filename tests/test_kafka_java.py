"""Kafka's own clients and tools, over TLS and SASL, against a node."""

import json
import re
import uuid

import pytest

from authority import Authority
from conftest import RunningNode
from kafkajars import Tools
from test_access import ADMIN, basic, put_users

pytestmark = [pytest.mark.clients, pytest.mark.soak]

CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]
VERSIONS = ["3.9.1", "4.4.0"]
"""The last with clients of protocols from before 2019, and the newest."""

OF_CORE = {
    "ConsoleProducer": "kafka.tools",
    "AclCommand": "kafka.admin",
    "ConfigCommand": "kafka.admin",
}
"""Packages of tools that 3.9 has elsewhere."""
PACKAGES = {
    "ConsoleConsumer": "org.apache.kafka.tools.consumer",
    "ConsumerGroupCommand": "org.apache.kafka.tools.consumer.group",
}
CONFIG = {"ConsoleProducer": "--producer.config", "ConsoleConsumer": "--consumer.config"}
"""Options that name a file of settings; all others have `--command-config`."""


@pytest.fixture(scope="module", params=VERSIONS)
def tools(request, tmp_path_factory):
    return Tools(tmp_path_factory.mktemp("kafka"), request.param)


@pytest.fixture(scope="module")
def guarded(tmp_path_factory):
    folder = tmp_path_factory.mktemp("guarded")
    put_users(folder / "data", {ADMIN: ["admin"]})
    authority = Authority(folder / "certificates")
    certificate, key = authority.issue("server", "localhost", "127.0.0.1")
    tls = {"HEADRACE_KAFKA__TLS_CERTIFICATE": certificate, "HEADRACE_KAFKA__TLS_KEY": key}
    node = RunningNode(folder / "data", **{name: str(value) for name, value in tls.items()})
    for mechanism in ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"):
        login = "plain.PlainLoginModule" if mechanism == "PLAIN" else "scram.ScramLoginModule"
        (folder / f"{mechanism}.properties").write_text(
            "security.protocol=SASL_SSL\n"
            "ssl.truststore.type=PEM\n"
            f"ssl.truststore.location={authority.file}\n"
            f"sasl.mechanism={mechanism}\n"
            f"sasl.jaas.config=org.apache.kafka.common.security.{login} required "
            'username="ann" password="horse";\n'
        )
    node.settings = folder
    yield node
    node.close()


class Client:
    """Tools of one version that know a node."""

    def __init__(self, tools, node):
        self._tools = tools
        self._node = node

    def __call__(self, tool, *arguments, mechanism="SCRAM-SHA-256", **more):
        package = PACKAGES.get(tool, "org.apache.kafka.tools")
        if self._tools.version.startswith("3."):
            package = OF_CORE.get(tool, package)
        file = str(self._node.settings / f"{mechanism}.properties")
        named = ["--bootstrap-server", f"localhost:{self._node.kafka}"]
        config = CONFIG.get(tool, "--command-config")
        return self._tools.run(f"{package}.{tool}", *named, config, file, *arguments, **more)


@pytest.fixture
def java(tools, guarded):
    return Client(tools, guarded)


@pytest.fixture
def topic(guarded):
    name = f"j-{uuid.uuid4().hex[:8]}"
    body = {"name": name, "partitions": 3}
    assert guarded.call("POST", "/api/v1/streams", body, **basic(ADMIN))[0] == 201
    return name


@pytest.mark.shows("java", "none gzip snappy lz4 zstd", "consume", "commits")
@pytest.mark.shows("java", "groups managed", "PLAIN", "SCRAM-SHA-512", "TLS")
def test_the_console_produces_in_each_codec_and_consumes_in_a_group(java, topic):
    for codec in CODECS:
        lines = "".join(f"{codec}-{number}:v{number}\n" for number in range(100))
        java(
            "ConsoleProducer", "--topic", topic, "--compression-codec", codec, "--property",
            "parse.key=true", "--property", "key.separator=:", stdin=lines, mechanism="PLAIN",
        )  # fmt: skip
    text = java(
        "ConsoleConsumer", "--topic", topic, "--from-beginning", "--max-messages", "500",
        "--timeout-ms", "60000", "--group", topic, "--property", "print.key=true",
        mechanism="SCRAM-SHA-512",
    )  # fmt: skip
    got = re.findall(r"^(\w+)-(\d+)\tv(\d+)$", text, re.MULTILINE)
    wanted = {(codec, str(number), str(number)) for codec in CODECS for number in range(100)}
    assert len(got) == 500
    assert set(got) == wanted
    told = java("ConsumerGroupCommand", "--describe", "--group", topic)
    assert re.search(rf"{topic}\s+{topic}\s+0\s+\d+\s+\d+\s+0\s", told), told
    assert topic in java("ConsumerGroupCommand", "--list")
    java("ConsumerGroupCommand", "--delete", "--group", topic)


@pytest.mark.shows("java", "idempotence", "acks", "SCRAM-SHA-256", "load")
def test_the_perf_tools_run(tools, guarded, topic):
    file = str(guarded.settings / "SCRAM-SHA-256.properties")
    text = tools.run(
        "org.apache.kafka.tools.ProducerPerformance", "--topic", topic, "--num-records", "50000",
        "--record-size", "100", "--throughput", "-1", "--producer.config", file,
        "--producer-props", f"bootstrap.servers=localhost:{guarded.kafka}", "acks=all",
    )  # fmt: skip
    assert "50000 records sent" in text
    text = tools.run(
        "org.apache.kafka.tools.ConsumerPerformance", "--bootstrap-server",
        f"localhost:{guarded.kafka}", "--topic", topic, "--messages", "50000",
        "--consumer.config", file, "--timeout", "60000",
    )  # fmt: skip
    assert re.search(r", 5\d{4}, ", text), text


@pytest.mark.shows("java", "topics", "partitions", "settings", "folders")
def test_topics_settings_and_folders_are_managed(java):
    name = f"t-{uuid.uuid4().hex[:8]}"
    java("TopicCommand", "--create", "--topic", name, "--partitions", "2", "--config",
         "retention.ms=1000000")  # fmt: skip
    java("TopicCommand", "--alter", "--topic", name, "--partitions", "4")
    told = java("TopicCommand", "--describe", "--topic", name)
    assert "PartitionCount: 4" in told
    assert "retention.ms=1000000" in told
    java("ConfigCommand", "--alter", "--topic", name, "--add-config", "max.message.bytes=5000")
    assert "max.message.bytes=5000" in java("ConfigCommand", "--describe", "--topic", name)
    assert name in java("LogDirsCommand", "--describe", "--topic-list", name)
    java("TopicCommand", "--delete", "--topic", name)
    assert name not in java("TopicCommand", "--list").splitlines()


@pytest.mark.shows("java", "offsets", "records deleted", "cluster")
def test_offsets_and_the_cluster_are_asked_for(java, topic, tmp_path):
    java("ConsoleProducer", "--topic", topic, stdin="one\n")
    assert f"{topic}:0:" in java("GetOffsetShell", "--topic", topic)
    places = [{"topic": topic, "partition": partition, "offset": -1} for partition in range(3)]
    file = tmp_path / "offsets.json"
    file.write_text(json.dumps({"partitions": places, "version": 1}))
    told = java("DeleteRecordsCommand", "--offset-json-file", str(file))
    assert sum(map(int, re.findall(r"low_watermark: (\d+)", told))) == 1, told
    cluster = java_cluster(java)
    assert "headrace" in cluster


def java_cluster(java):
    """`kafka-cluster.sh cluster-id`, whose options stand behind its subcommand."""
    node, tools = java._node, java._tools
    file = str(node.settings / "SCRAM-SHA-256.properties")
    where = ["--bootstrap-server", f"localhost:{node.kafka}"]
    return tools.run("org.apache.kafka.tools.ClusterTool", "cluster-id", *where, "--config", file)


@pytest.mark.shows("java", "ACLs")
def test_acls_are_managed(java):
    name = f"a-{uuid.uuid4().hex[:8]}"
    about = ["--topic", name, "--allow-principal", "User:bob"]
    java("AclCommand", "--add", *about, "--consumer", "--group", name)
    told = java("AclCommand", "--list", "--topic", name)
    assert "operation=READ" in told
    assert "User:bob" in told
    refused = java("AclCommand", "--add", *about, "--operation", "Create", code=1)
    assert "role admin" in refused
    java("AclCommand", "--remove", "--force", "--topic", name)
    assert "User:bob" not in java("AclCommand", "--list", "--topic", name)
