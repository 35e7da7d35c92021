"""Users and rules at a running node: who is let in, what they may do, and what changes live."""

import asyncio
import base64
import json
import os
import signal
import stat
import subprocess
import sys
import threading
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import paho.mqtt.client as paho
import pytest
from paho.mqtt.enums import CallbackAPIVersion

from authority import Authority
from conftest import environment, headrace, wait_for
from headrace.adapters.acls import AclFile
from headrace.adapters.clock import SystemClock
from headrace.adapters.users import UserFile
from headrace.config import AccessSettings
from headrace.errors import AuthenticationError, BusyError
from headrace.kernel import credentials
from headrace.kernel import users as users_of_node
from headrace.native import Switchboard
from headrace.node.access import Gate
from pahoclient import leave

pytestmark = pytest.mark.slow

ADMIN = "ann:horse"


def basic(who: str) -> dict[str, str]:
    return {"Authorization": "Basic " + base64.b64encode(who.encode()).decode()}


def add(node, who: str, *roles: str, as_: str = ADMIN) -> tuple[int, object]:
    name, _, password = who.partition(":")
    body = {"name": name, "password": password, "roles": list(roles)}
    return node.call("POST", "/api/v1/users", body, **basic(as_))


@pytest.fixture
def guarded(start_node, tmp_path):
    """A node with the users ann (admin), bob and meter-1 (role field), and a few rules."""
    known = {ADMIN: ["admin"], "bob:cart": [], "meter-1:disc": ["field"]}
    put_users(tmp_path / "data", known)
    rules = tmp_path / "headrace.toml"
    rules.write_text(RULES)
    node = start_node("--config", str(rules))
    node.rules = rules
    return node


RULES = """
[[access.rules]]
deny = ["publish", "subscribe"]
topics = ["secret/#"]
[[access.rules]]
allow = ["all"]
users = ["ann"]
[[access.rules]]
allow = ["publish", "will"]
roles = ["field"]
topics = ["field/{username}/#"]
[[access.rules]]
allow = ["subscribe"]
topics = ["field/#"]
"""


def put_users(data: Path, known: dict[str, list[str]]) -> None:
    """Users of a node that has not started yet; without a colon by certificate alone."""
    data.mkdir()
    file = UserFile(data / "users.json")
    for who, roles in known.items():
        name, colon, password = who.partition(":")
        user = credentials.make(name, password.encode() if colon else None, roles, os.urandom)
        file.change(partial(users_of_node.add, user=user))


def users(command: str, who: str, *args: str, **extra: str) -> str:
    name, _, password = who.partition(":")
    done = subprocess.run(
        [sys.executable, "-m", "headrace", "users", command, name, *args],
        capture_output=True, check=False, env=environment(**extra), input=password, text=True,
        timeout=60,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


class Paho:
    """A client of 5.0 or 3.1.1, and what it was told."""

    def __init__(self, port, who="", client_id="", version=5, **options):
        self.client = paho.Client(
            CallbackAPIVersion.VERSION2, client_id, protocol=paho.MQTTProtocolVersion(version)
        )
        name, _, password = who.partition(":")
        if who:
            self.client.username_pw_set(name, password)
        self.codes: dict[str, int] = {}
        self.heard = threading.Condition()
        self.messages: list[str] = []
        self.client.on_connect = lambda *args: self._tell("connack", args[3])
        self.client.on_disconnect = lambda *args: self._tell("disconnect", args[3])
        self.client.on_subscribe = lambda *args: self._tell("suback", args[3][0])
        self.client.on_publish = lambda *args: self._tell("puback", args[3])
        self.client.on_message = lambda *args: self.messages.append(args[2].topic)
        for name, value in options.items():
            getattr(self.client, name)(*value)
        self.client.connect("127.0.0.1", port)
        self.client.loop_start()
        self.connack = self.hears("connack")

    def _tell(self, what, code):
        with self.heard:
            self.codes[what] = code.value
            self.heard.notify_all()

    def hears(self, what: str) -> int:
        with self.heard:
            assert self.heard.wait_for(lambda: what in self.codes, 30), f"no {what}"
            return self.codes.pop(what)

    def publish(self, topic: str, qos: int = 1) -> int:
        self.client.publish(topic, b"x", qos)
        return self.hears("puback")

    def subscribe(self, topic_filter: str) -> int:
        self.client.subscribe(topic_filter, 1)
        return self.hears("suback")


@contextmanager
def connected(*args, **options):
    client = Paho(*args, **options)
    try:
        yield client
    finally:
        leave(client.client)


def connack(*args, **options) -> int:
    with connected(*args, **options) as client:
        return client.connack


def test_passwords_let_in_and_nothing_else_does(guarded):
    for version in (4, 5):
        assert connack(guarded.mqtt, ADMIN, version=version) == 0
        assert connack(guarded.mqtt, "bob:cart", version=version) == 0
        assert connack(guarded.mqtt, "ann:cart", version=version) == 0x86
        assert connack(guarded.mqtt, "eve:horse", version=version) == 0x86
        assert connack(guarded.mqtt, version=version) == 0x87
    wrong = 'headrace_access_refused_total{door="mqtt",reason="wrong"}'
    _, text = guarded.call("GET", "/metrics", **basic("bob:cart"))
    assert f"{wrong} 4.0" in text


def test_rules_hold_for_publishes_subscriptions_and_wills(guarded):
    with connected(guarded.mqtt, "meter-1:disc") as meter:
        assert meter.publish("field/meter-1/power") == 0x10
        assert meter.publish("field/meter-2/power") == 0x87
        assert meter.subscribe("field/+/power") == 1
        assert meter.subscribe("#") == 0x87
        assert meter.subscribe("$share/g/field/#") == 1
        assert meter.subscribe("$share/g/other") == 0x87
    with connected(guarded.mqtt, ADMIN) as admin:
        assert admin.publish("anything") == 0x10
        assert admin.publish("secret/x") == 0x87
        assert admin.subscribe("secret/#") == 0x87
    with connected(guarded.mqtt, "bob:cart", version=4) as bob:
        assert bob.publish("field/meter-1/power") == 0, "3.1.1 has no word for no"
        assert bob.subscribe("other") == 0x80
    assert connack(guarded.mqtt, "meter-1:disc", will_set=("field/meter-1/gone", b"x")) == 0
    assert connack(guarded.mqtt, "meter-1:disc", will_set=("field/meter-2/gone", b"x")) == 0x87


def test_a_file_of_users_is_for_the_node_alone_and_shows_no_password(guarded):
    file = guarded.data / "users.json"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert not {"horse", "cart", "disc"} & set(file.read_text().replace('"', " ").split())
    guarded.stop()
    assert users("add", "eve:pear", f"--data={guarded.data}", "--json") == '{"added": "eve"}\n'
    users("passwd", "eve:apple", f"--file={file}")
    users("roles", "eve", "--role=field", f"--file={file}")
    users("remove", "eve", f"--data={guarded.data}")
    verified = headrace("log", "verify", "--data", str(guarded.data))
    assert verified.returncode == 0, verified.stdout + verified.stderr
    listed = headrace("users", "list", "--data", str(guarded.data), "--json")
    assert json.loads(listed.stdout) == {
        "users": [
            {"name": "ann", "roles": ["admin"], "password": True},
            {"name": "bob", "roles": [], "password": True},
            {"name": "meter-1", "roles": ["field"], "password": True},
        ]
    }


def test_users_change_while_the_node_serves_and_survive_it(guarded):
    url = f"http://ann@127.0.0.1:{guarded.http}"
    by_admin = {"HEADRACE_URL": url, "HEADRACE_PASSWORD": "horse"}
    with connected(guarded.mqtt, "bob:cart") as bob:
        assert users("add", "eve:apple", "--role=field", **by_admin) == "added eve\n"
        assert connack(guarded.mqtt, "eve:apple") == 0
        users("passwd", "eve:pear", **by_admin)
        assert connack(guarded.mqtt, "eve:apple") == 0x86
        assert connack(guarded.mqtt, "eve:pear") == 0
        assert bob.subscribe("field/#") == 1
        users("remove", "bob", **by_admin)
        assert bob.hears("disconnect") == 0x87
    assert connack(guarded.mqtt, "bob:cart") == 0x86
    refused = headrace("users", "remove", "ann", **by_admin)
    assert refused.returncode == 2
    assert "nobody could manage the node" in refused.stderr


def test_the_first_user_closes_a_node_to_all_others(start_node):
    node = start_node()
    with connected(node.mqtt) as nobody:
        assert nobody.connack == 0
        status, answer = add(node, "bob:cart")
        assert (status, answer["error"]) == (400, "invalid_user")
        assert node.call("GET", "/api/v1/streams")[0] == 200
        assert add(node, ADMIN, "admin")[0] == 201
        assert nobody.hears("disconnect") == 0x87
    assert node.call("GET", "/api/v1/streams")[0] == 401
    assert node.call("GET", "/health")[0] == 200
    assert node.call("GET", "/ready")[0] == 200
    assert connack(node.mqtt) == 0x87
    node.stop()
    again = start_node.again(node)
    assert connack(again.mqtt, ADMIN) == 0


def test_http_wants_a_user_and_for_managing_an_admin(guarded):
    for method, path, body, statuses in [
        ("GET", "/metrics", None, (401, 200, 200)),
        ("GET", "/api/v1/streams", None, (401, 200, 200)),
        ("GET", "/api/v1/queues", None, (401, 200, 200)),
        ("DELETE", "/api/v1/queues/none", None, (401, 403, 404)),
        ("GET", "/api/v1/users", None, (401, 403, 200)),
        ("GET", "/api/v1/sessions", None, (401, 403, 200)),
        ("POST", "/api/v1/streams", {"name": "made"}, (401, 403, 201)),
        ("DELETE", "/api/v1/streams/made", None, (401, 403, 200)),
        ("POST", "/api/v1/publish", {"topic": "t", "payload": ""}, (401, 403, 200)),
        ("POST", "/api/v1/publish", {"topic": "secret/t", "payload": ""}, (401, 403, 403)),
    ]:
        answers = (
            guarded.call(method, path, body),
            guarded.call(method, path, body, **basic("bob:cart")),
            guarded.call(method, path, body, **basic(ADMIN)),
        )
        assert tuple(status for status, _ in answers) == statuses, (method, path)
    field = {"topic": "field/meter-1/x", "payload": ""}
    assert guarded.call("POST", "/api/v1/publish", field, **basic("meter-1:disc"))[0] == 200
    for header in ("", "Basic", "Basic !", "Basic YW5u", "Bearer x", "Basic /w=="):
        status, answer = guarded.call("GET", "/metrics", Authorization=header)
        assert (status, answer["error"]) == (401, "authentication"), header
    page = basic(ADMIN) | {"Origin": "https://example.org"}
    assert guarded.call("GET", "/metrics", **page)[0] == 403


@pytest.mark.setting("access.rules")
def test_sighup_reads_rules_again_for_clients_that_are_here(guarded):
    with connected(guarded.mqtt, "bob:cart") as bob, connected(guarded.mqtt, ADMIN) as admin:
        assert bob.publish("late") == 0x87
        assert admin.subscribe("field/#") == 1
        late = '[[access.rules]]\nallow = ["publish"]\nusers = ["bob"]\ntopics = ["late"]\n'
        guarded.rules.write_text(late)
        guarded.process.send_signal(signal.SIGHUP)
        assert admin.hears("disconnect") == 0x87, "it may not subscribe to that any more"
        assert bob.publish("late") == 0x10
        guarded.rules.write_text('[[access.rules]]\nallow = ["paint"]\n')
        guarded.process.send_signal(signal.SIGHUP)
        wait_for(lambda: "the settings of before hold" in guarded.log.read_text())
        assert '"paint" is no action' in guarded.log.read_text()
        assert bob.publish("late") == 0x10


HOLES = """
[[access.rules]]
deny = ["subscribe"]
users = ["ann"]
topics = ["secret/#"]
[[access.rules]]
allow = ["all"]
"""


def test_what_a_rule_denies_of_a_subscription_is_left_out(start_node, tmp_path):
    put_users(tmp_path / "data", {ADMIN: ["admin"], "bob:cart": []})
    file = tmp_path / "headrace.toml"
    file.write_text(HOLES)
    node = start_node("--config", str(file))
    with connected(node.mqtt, "bob:cart") as bob, connected(node.mqtt, ADMIN) as ann:
        bob.client.publish("secret/key", b"x", 1, retain=True)
        assert bob.hears("puback") in {0x00, 0x10}
        assert ann.subscribe("secret/#") == 0x87
        assert ann.subscribe("#") == 1
        assert bob.publish("secret/x") == 0x10, "nobody hears it"
        assert bob.publish("late") == 0
        wait_for(lambda: ann.messages == ["late"])
        file.write_text(HOLES.replace('"secret/#"', '"secret/#", "late"'))
        node.process.send_signal(signal.SIGHUP)
        wait_for(lambda: "reloaded: access.rules" in node.log.read_text())
        assert bob.publish("late") == 0x10
        assert bob.publish("last") == 0
        wait_for(lambda: ann.messages == ["late", "last"])


@pytest.mark.setting("access.reveal_refusals")
def test_mqtt_3_9_3_clients_need_not_be_told_that_it_is_rights_that_they_lack(guarded):
    with connected(guarded.mqtt, "bob:cart") as bob:
        assert (bob.subscribe("other"), bob.publish("other")) == (0x87, 0x87)
        guarded.rules.write_text(f"[access]\nreveal_refusals = false\n{RULES}")
        guarded.process.send_signal(signal.SIGHUP)
        wait_for(lambda: "access.reveal_refusals is false" in guarded.log.read_text())
        assert (bob.subscribe("other"), bob.publish("other")) == (0x80, 0x80)
        assert bob.subscribe("field/#") == 1
    assert connack(guarded.mqtt) == 0x80
    assert connack(guarded.mqtt, version=4) == 0x87, "paho's word for return code 5"


def test_an_address_that_keeps_failing_must_wait_and_known_users_need_not(start_node):
    node = start_node()
    add(node, ADMIN, "admin", as_=":")
    assert connack(node.mqtt, ADMIN) == 0
    codes = [connack(node.mqtt, f"ann:{number}") for number in range(10)]
    assert codes == [0x86] * 10
    tries = (connack(node.mqtt, f"ann:{number}") for number in range(10, 30))
    assert next(code for code in tries if code != 0x86) == 0x9F
    assert connack(node.mqtt, ADMIN) == 0, "its password is known"
    throttled = 'headrace_access_refused_total{door="mqtt",reason="throttled"}'
    assert throttled in node.call("GET", "/metrics", **basic(ADMIN))[1]


@pytest.mark.setting("access.anonymous", "access.no_match", "access.denied_publish")
def test_anonymous_clients_are_let_in_by_a_setting_and_held_to_rules(start_node, tmp_path):
    file = tmp_path / "headrace.toml"
    file.write_text(
        """
        [access]
        anonymous = true
        no_match = "allow"
        denied_publish = "disconnect"
        [[access.rules]]
        deny = ["subscribe", "publish"]
        topics = ["test/nosubscribe"]
        [[access.rules]]
        deny = ["connect"]
        clients = ["bad-*"]
        """
    )
    node = start_node("--config", str(file))
    assert connack(node.mqtt, client_id="bad-1") == 0x87
    with connected(node.mqtt, client_id="good") as client:
        assert client.subscribe("test/nosubscribe") == 0x87
        assert client.subscribe("test/other") == 1
        client.client.publish("test/nosubscribe", b"x", 1)
        assert client.hears("disconnect") == 0x87
    assert node.call("GET", "/api/v1/streams")[0] == 401, "HTTP always wants a user"


@pytest.mark.parametrize(
    ("mode", "known", "unknown"), [("off", 0x87, 0x87), ("known", 0, 0x87), ("any", 0, 0)]
)
@pytest.mark.setting("access.certificates")
def test_a_certificate_says_who_a_client_is(start_node, tmp_path, mode, known, unknown):
    authority = Authority(tmp_path / "pki")
    chain, key = authority.issue("node", "127.0.0.1")
    put_users(tmp_path / "data", {ADMIN: ["admin"], "meter-1": ["field"]})
    node = start_node(
        HEADRACE_MQTT__TLS_BIND="127.0.0.1:0",
        HEADRACE_MQTT__TLS_CERTIFICATE=str(chain),
        HEADRACE_MQTT__TLS_KEY=str(key),
        HEADRACE_MQTT__TLS_CLIENT_CA=str(authority.file),
        HEADRACE_ACCESS__CERTIFICATES=mode,
    )
    port = int(node.ready["mqtts"].rpartition(":")[2])
    for name, expected in (("meter-1", known), ("meter-2", unknown)):
        own, own_key = authority.issue(name, common_name=name)
        shown = (str(authority.file), str(own), str(own_key))
        assert connack(port, tls_set=shown) == expected, name
        assert connack(port, ADMIN, tls_set=shown) == 0, "a password says more"


@pytest.mark.setting("access.users")
def test_users_may_stand_in_another_file(start_node, tmp_path):
    put_users(tmp_path / "elsewhere", {ADMIN: ["admin"]})
    node = start_node(HEADRACE_ACCESS__USERS=str(tmp_path / "elsewhere" / "users.json"))
    assert connack(node.mqtt, ADMIN) == 0
    assert connack(node.mqtt) == 0x87


@pytest.mark.setting("access.password_cache")
def test_a_password_is_checked_once_for_as_long_as_it_is_known(start_node, tmp_path):
    put_users(tmp_path / "data", {ADMIN: ["admin"]})
    for expiry, checks in (("1h", 1), ("0ms", 4)):
        node = start_node(HEADRACE_ACCESS__PASSWORD_CACHE=expiry)
        for _ in range(3):
            assert connack(node.mqtt, ADMIN) == 0
        text = node.call("GET", "/metrics", **basic(ADMIN))[1]
        assert f"\nheadrace_access_passwords_checked_total {checks}.0" in text
        node.stop()


@pytest.mark.setting("access.password_threads", "access.password_queue")
def test_passwords_wait_for_so_many_threads_and_no_more_than_may(tmp_path):
    put_users(tmp_path / "data", {ADMIN: ["admin"]})
    store = UserFile(tmp_path / "data" / "users.json")
    acls = AclFile(tmp_path / "data" / "acls.json")
    settings = AccessSettings(password_threads=3, password_queue=5)

    async def story():
        gate = Gate(store, acls, settings, SystemClock(), Switchboard((0, 0)))
        tries = [gate.authenticate("mqtt", "ann", b"%d" % each, None) for each in range(8)]
        ends = await asyncio.gather(*tries, return_exceptions=True)
        assert [type(end) for end in ends] == [AuthenticationError] * 5 + [BusyError] * 3
        threads = [each for each in threading.enumerate() if each.name.startswith("passwords")]
        assert len(threads) == 3
        same = [gate.authenticate("mqtt", "ann", b"horse", None) for _ in range(100)]
        assert {user.name for user in await asyncio.gather(*same)} == {"ann"}, "checked once"
        gate.close()

    asyncio.run(story())


def test_mosquitto_pub_gives_user_and_password(guarded):
    def pub(who: str) -> int:
        name, _, password = who.partition(":")
        arguments = ["-p", str(guarded.mqtt), "-u", name, "-P", password, "-t", "t", "-m", "x"]
        done = subprocess.run(
            ["mosquitto_pub", "-q", "1", *arguments], capture_output=True, check=False, timeout=60
        )
        return done.returncode

    assert pub(ADMIN) == 0
    assert pub("ann:no") == 4


def test_a_wide_door_needs_users(tmp_path):
    refused = headrace("serve", "--mqtt", "0.0.0.0:0", "--data", str(tmp_path / "data"))
    assert refused.returncode == 2
    assert "would be open to everyone" in refused.stderr
    assert "headrace users add NAME --role admin" in refused.stderr


def test_a_wide_door_opens_with_users_and_warns_without_tls(start_node, tmp_path):
    put_users(tmp_path / "data", {ADMIN: ["admin"]})
    node = start_node(HEADRACE_MQTT__WS_BIND="0.0.0.0:0")
    assert "ws at 0.0.0.0:0 takes passwords in plain text" in node.log.read_text()
    (node.data / "users.json").unlink()
    node.process.send_signal(signal.SIGHUP)
    wait_for(lambda: "would be open to everyone" in node.log.read_text())
    assert connack(node.mqtt) == 0x87


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('[[access.rules]]\nallow = ["publish"]\ndeny = ["publish"]', "one of allow and deny"),
        ("[[access.rules]]\nallow = []", 'a rule names actions, or "all"'),
        *(
            (
                f'[[access.rules]]\nallow = ["publish"]\n{name} = []',
                f"{name} is empty, which fits nothing; without it the rule fits all",
            )
            for name in ("users", "roles", "clients", "addresses", "topics", "streams", "groups")
        ),
        ('[[access.rules]]\nallow = ["all"]\ntopics = ["a/#/b"]', "# must stand alone"),
        ('[[access.rules]]\nallow = ["all"]\ntopic = ["a"]', "did you mean 'topics'"),
        ("[access]\nanonymus = true", "did you mean 'anonymous'"),
    ],
)
def test_rules_that_are_none_are_told(tmp_path, text, told):
    file = tmp_path / "headrace.toml"
    file.write_text(text)
    refused = headrace("serve", "--config", str(file), "--data", str(tmp_path / "data"))
    assert refused.returncode == 2
    assert told in refused.stderr


def test_a_damaged_file_of_users_stops_a_start(tmp_path):
    data = tmp_path / "data"
    data.mkdir()
    (data / "users.json").write_text('{"users": {"ann": {}}}')
    refused = headrace("serve", "--data", str(data))
    assert refused.returncode == 2
    assert "users.json is damaged (users.ann.roles" in refused.stderr
