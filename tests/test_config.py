"""Settings: where they come from, what wins, and what an error says."""

import pytest

from headrace.config import Config, load
from headrace.errors import ConfigError
from headrace.model import Address
from headrace.settings import Settings
from headrace.text import nearest, parse_duration_ms, parse_size


@pytest.fixture
def toml(tmp_path):
    def write(text):
        path = tmp_path / "headrace.toml"
        path.write_text(text)
        return path

    return write


def refusal(*args):
    with pytest.raises(ConfigError) as caught:
        load(*args)
    message = str(caught.value)
    assert len(message.splitlines()) <= 3
    return message


def test_defaults_are_the_contracts():
    config = load()
    assert config == Config()
    assert config.mqtt.bind == Address("127.0.0.1", 1883)
    assert config.kafka.bind == Address("127.0.0.1", 9092)
    assert config.http.bind == Address("127.0.0.1", 8080)


def test_file_over_defaults_environment_over_file_options_over_environment(toml):
    file = toml(
        '[node]\nname = "file"\n[mqtt]\nbind = "127.0.0.1:1"\n[kafka]\nbind = "127.0.0.1:1"'
    )
    environment = {"HEADRACE_MQTT__BIND": "127.0.0.1:2", "HEADRACE_KAFKA__BIND": "127.0.0.1:2"}
    config = load(file, environment, {"kafka": {"bind": "127.0.0.1:3"}, "http": {"bind": None}})
    assert config.node.name == "file"
    assert config.mqtt.bind.port == 2
    assert config.kafka.bind.port == 3
    assert config.http.bind.port == 8080


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ('[mqtt]\nbnd = "x:1"', "[mqtt] bnd: unknown; did you mean 'bind'?"),
        ("[mqttt]\n", "[mqttt]: unknown; did you mean 'mqtt'?"),
        ("[mqttt]\nx = 1", "[mqttt] x: unknown; did you mean 'mqtt'?"),
        ('[mqtt]\nbind = "1883"', "[mqtt] bind: must be HOST:PORT"),
        (
            '[kafka]\ngroup_min_session_timeout = "31m"',
            "[kafka]: group_min_session_timeout must not exceed group_max_session_timeout",
        ),
        ("[kafka]\ngroup_max_size = 1001", "[kafka] group_max_size: must be from 1 to 1000"),
        ('[mqtt]\nbind = "127.0.0.1:66000"', "[mqtt] bind: must end in a port from 0 to 65535"),
        ("[mqtt]\nbind = 1883", "[mqtt] bind: must be HOST:PORT"),
        ("[mqtt]\nreceive_maximum = 0", "[mqtt] receive_maximum: must be from 1 to 65535"),
        ("[mqtt]\nreceive_maximum = true", "[mqtt] receive_maximum: must be a whole number"),
        (
            "[mqtt]\nconnect_timeout = 10",
            "[mqtt] connect_timeout: must be a duration with its unit",
        ),
        ('[mqtt]\ntls_bind = "none"', "[mqtt] tls_bind: must be HOST:PORT"),
        ('[mqtt]\nws_bind = ""', "got ''; or \"off\""),
        ("[mqtt]\nunix_mode = 660", "[mqtt] unix_mode: must be the mode of a file in quotes"),
        ('[mqtt]\nunix_mode = "888"', "[mqtt] unix_mode: must be the mode of a file in quotes"),
        ('[mqtt]\nws_path = "mqtt"', "[mqtt] ws_path: must be a path of a URL, such as /mqtt"),
        ('[mqtt]\nws_path = "/a?b"', "[mqtt] ws_path: must be a path of a URL, such as /mqtt"),
        ("[mqtt]\nws_origins = 3", "[mqtt] ws_origins: must be a list of texts; got 3"),
        ('[mqtt]\nws_origins = ["a.org/"]', "[mqtt] ws_origins: must be origins, such as https:"),
        (
            '[mqtt]\nproxy_protocol = ["tcp"]',
            "[mqtt] proxy_protocol: must be of mqtt, mqtts, ws, wss, unix; got 'tcp'",
        ),
        ("[kafka]\nproxy_protocol = 1", "[kafka] proxy_protocol: must be true or false; got 1"),
        (
            '[mqtt]\nproxy_trusted = ["10.0.0.1/8"]',
            "[mqtt] proxy_trusted: must be a list of networks, such as 10.0.0.0/8: 10.0.0.1/8 has",
        ),
        ("[mqtt]\ntls_version_min = 1.1", "[mqtt] tls_version_min: input should be '1.2' or '1.3'"),
        ('[http]\ntls_key = "k"', "tls_key does nothing without tls_certificate"),
        ('[mqtt]\ntls_identity = "dn"', "[mqtt] tls_identity: input should be 'cn', 'san' or"),
        ("[limits]\nhandshakes = 0", "[limits] handshakes: must be from 1 to 1000000; got 0"),
        ('[log]\nsegment_bytes = "2MX"', "[log] segment_bytes: must be a size"),
        ('[log]\nsegment_bytes = "1B"', "[log] segment_bytes: must be from 65536"),
        ('[log]\nretention_ms = "1y"', "[log] retention_ms: must be a duration"),
        ('[log]\nfsync = "never"', "[log] fsync: must be one of commit, interval, os"),
        (
            "[log]\nreserve_bytes = 0\nmax_compaction_lag_ms = 1\nmin_compaction_lag_ms = 2",
            "[log]: max_compaction_lag_ms (1) must not be less than min_compaction_lag_ms (2)",
        ),
        (
            "[streams.a]\nretention.ms = true",
            "[streams.a] retention.ms: must be a text or a number; got True",
        ),
        ("[log]\nretention_mss = 1", "[log] retention_mss: unknown; did you mean 'retention_ms'"),
        (
            "[logging]\nformat = 'xml'",
            "[logging] format: input should be 'text' or 'json'; got 'xml'",
        ),
        ("[node]\nname = ''", "[node] name: must be a text that is not empty"),
        ("[node]\ndefault_stream = 1", "[node] default_stream: must be true or false; got 1"),
        (
            "[streams.x]\npartition = 1",
            "[streams.x] partition: unknown; did you mean 'partitions'?",
        ),
        ("[streams.x]\nfilters = 'a'", "[streams.x] filters: "),
        ("node = 3", "[node]: input should be a valid dictionary"),
        ("[cluster]\n", "[cluster]: [cluster] is not served by this version; remove it"),
        ("[queues]\na = 1", "[queues.a]: must be a table; got 1"),
        ("[queues.a]\nkeys = 1", "[queues.a] keys: unknown; did you mean 'key'?"),
        ("[queues.a]\nprefetch = 0", "[queues.a] prefetch: must be from 1 to 65535; got 0"),
        (
            "[queues.a]\nack.deadlin.ms = 1",
            "[queues.a] ack.deadlin.ms: no queue setting 'ack.deadlin.ms'; did you mean 'ack.dead",
        ),
        ("[queues.a]\nretention.ms = 'x'", "[queues.a] retention.ms: must be a duration"),
        (
            "[queues.a]\n[streams.a]\n",
            "[queues.a]: [streams.a] is there too, and a queue is a stream; say all of it in one",
        ),
        ("a b", "is not TOML"),
        ("#" * 2_000_000, "is longer than 1048576 bytes"),
        ("a = " + "[" * 100_000, "is nested too deeply"),
        (
            '[node]\ndata = "a\\u0000b"',
            "[node] data: must be a text that is not empty and has no NUL",
        ),
    ],
)
def test_an_error_names_file_setting_and_remedy(toml, text, error):
    file = toml(text)
    message = refusal(file)
    assert message.startswith(str(file))
    assert error in message


def test_a_missing_file_is_named(tmp_path):
    assert (
        refusal(tmp_path / "no.toml")
        == f"{tmp_path}/no.toml: cannot be read: No such file or directory"
    )


def test_an_error_names_the_variable():
    assert (
        refusal(None, {"HEADRACE_MQTT__BND": "1"})
        == "HEADRACE_MQTT__BND: unknown; did you mean 'bind'?"
    )
    assert (
        refusal(None, {"HEADRACE_MTT__BIND": "1"})
        == "HEADRACE_MTT__BIND: unknown; did you mean 'mqtt'?"
    )
    assert (
        refusal(None, {"HEADRACE_MQTT_BIND": "1"})
        == "HEADRACE_MQTT_BIND: no such variable; did you mean HEADRACE_MQTT__BIND?"
    )
    assert (
        refusal(None, {"HEADRACE_DATA": "/x"})
        == "HEADRACE_DATA: no such variable; did you mean HEADRACE_NODE__DATA?"
    )
    assert "HEADRACE_CLUSTER__X: [cluster] is not served" in refusal(
        None, {"HEADRACE_CLUSTER__X": "1"}
    )
    assert "under [streams.NAME]" in refusal(None, {"HEADRACE_STREAMS__A__KEY": "topic"})
    assert "under [queues.NAME]" in refusal(None, {"HEADRACE_QUEUES__A__ORDER": "key"})


def test_a_value_in_a_tables_place_is_named_also_under_an_option(toml):
    file = toml("mqtt = 3")
    message = refusal(file, {}, {"mqtt": {"bind": "127.0.0.1:0"}})
    assert message == f"{file}:1: [mqtt]: must be a table of settings; got 3"


def test_an_error_names_the_option():
    assert refusal(None, {}, {"kafka": {"bind": "x"}}).startswith("--kafka: must be HOST:PORT")


def test_variables_of_others_are_left_alone():
    assert load(None, {"HEADRACE_URL": "http://x", "PATH": "/bin", "MQTT__BIND": "x"}) == Config()
    # Kubernetes tells every container of a service like this.
    assert load(None, {"HEADRACE_KAFKA_PORT": "tcp://x", "HEADRACE_SERVICE_HOST": "x"}) == Config()


def test_variables_are_text_and_become_what_the_setting_is():
    config = load(
        None,
        {
            "HEADRACE_LIMITS__CONNECTIONS": "12",
            "HEADRACE_LIMITS__STALL": "250ms",
            "HEADRACE_LOG__SEGMENT_BYTES": "16MiB",
            "HEADRACE_NODE__DEFAULT_STREAM": "false",
        },
    )
    assert config.limits.connections == 12
    assert config.limits.stall == 250
    assert config.log.segment_bytes == 16 * 1024 * 1024
    assert config.node.default_stream is False


def test_doors_are_off_where_that_is_said_and_lists_have_commas(toml):
    environment = {
        "HEADRACE_MQTT__BIND": "off",
        "HEADRACE_MQTT__PROXY_PROTOCOL": "ws, wss",
        "HEADRACE_MQTT__PROXY_TRUSTED": "10.0.0.0/8,fd00::/8",
        "HEADRACE_MQTT__WS_ORIGINS": "",
        "HEADRACE_MQTT__UNIX_MODE": "0600",
    }
    mqtt = load(toml('[mqtt]\nws_origins = ["https://a"]'), environment).mqtt
    assert mqtt.bind is None
    assert mqtt.proxy_protocol == ("ws", "wss")
    assert [str(each) for each in mqtt.proxy_trusted] == ["10.0.0.0/8", "fd00::/8"]
    assert mqtt.ws_origins == ()
    assert mqtt.unix_mode == 0o600
    assert load(None, {}, {"mqtt": {"ws_bind": "off"}}).mqtt.ws_bind is None
    assert load(None, {}, {"kafka": {"tls_bind": "off"}}).kafka.tls_bind is None


def test_the_log_table_holds_the_defaults_of_streams(toml):
    text = """[log]
retention_ms = "30d"
retention_bytes = -1
cleanup_policy = "compact,delete"
min_cleanable_dirty_ratio = 0.1
"""
    of_streams = load(toml(text), {"HEADRACE_LOG__RETENTION_RECORDS": "1000"}).log.of_streams
    assert of_streams == Settings(
        retention_ms=30 * 86_400_000,
        cleanup_policy="compact,delete",
        min_cleanable_dirty_ratio=0.1,
        retention_records=1000,
    )
    assert load().log.of_streams == Settings()


def test_stream_settings_have_kafkas_names_quoted_or_not(toml):
    quoted = toml('[streams.x]\npartitions = 2\nfilters = ["a/#"]\n"max.message.bytes" = "1MiB"')
    stream = load(quoted).streams["x"]
    assert (stream.partitions, stream.filters) == (2, ("a/#",))
    assert stream.settings == {"max.message.bytes": 1 << 20}
    unquoted = toml('[streams.x]\nmax.message.bytes = 5\nfsync = "os"')
    assert load(unquoted).streams["x"].settings == {"max.message.bytes": 5, "fsync": "os"}


@pytest.mark.parametrize(
    ("text", "size"),
    [(7, 7), ("7", 7), ("7B", 7), ("1KiB", 1024), ("1.5 KiB", 1536), ("2MB", 2_000_000)],
)
def test_sizes(text, size):
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["", "KiB", "-1", -1, True, None, "1.3B", "1kib", "1 2", "٣"])
def test_what_is_no_size(text):
    with pytest.raises(ValueError, match="must be"):
        parse_size(text)


@pytest.mark.parametrize(
    ("text", "duration_ms"),
    [("250ms", 250), ("1.5s", 1500), ("2m", 120_000), ("1h", 3_600_000), ("7d", 604_800_000)],
)
def test_durations(text, duration_ms):
    assert parse_duration_ms(text) == duration_ms


@pytest.mark.parametrize("text", ["", "5", 5, "5 S", "0.5ms"])
def test_what_is_no_duration(text):
    with pytest.raises(ValueError, match="must be"):
        parse_duration_ms(text)


def test_nearest_names_all_where_none_is_near():
    assert nearest("zzz", ["bind", "advertised"]) == "known: advertised, bind"


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("127.0.0.1:0", ("127.0.0.1", 0)),
        ("[::1]:80", ("::1", 80)),
        ("localhost:65535", ("localhost", 65535)),
    ],
)
def test_addresses(text, address):
    assert Address.parse(text) == address
    assert str(Address.parse(text)) == text


@pytest.mark.parametrize(
    "text",
    ["", ":1", "a", "a:", "a:-1", "::1:80", "[::1]", "a:1x", "a:٣", "a..b:1", f"{'x' * 64}:1"],
)
def test_what_is_no_address(text):
    with pytest.raises(ValueError, match="must"):
        Address.parse(text)


@pytest.mark.parametrize("host", ["127.0.0.1", "127.1.2.3", "::1", "localhost"])
def test_loopback(host):
    assert Address(host, 1).loopback


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.0.0.1", "example.org"])
def test_wider_than_loopback(host):
    assert not Address(host, 1).loopback
