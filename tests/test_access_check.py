"""`headrace access check`: what rules say of somebody, and which of them says it."""

import json

import pytest

from conftest import headrace
from test_access import ADMIN, connected, put_users

pytestmark = pytest.mark.slow

RULES = """\
[access]
anonymous = true

[[access.rules]]
deny = ["subscribe", "read"]
topics = ["secret/#"]
streams = ["secret"]

[[access.rules]]
allow = ["all"]
roles = ["admin"]

[[access.rules]]
allow = ["publish", "will"]
roles = ["field"]
topics = ["field/{username}/#", "by-id/{clientid}"]

[[access.rules]]
allow = ["subscribe", "read", "connect"]
addresses = ["10.0.0.0/8"]
topics = ["#"]
streams = ["*"]
groups = ["bob-*"]
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("check")
    put_users(folder / "data", {ADMIN: ["admin"], "bob:cart": [], "meter-1:disc": ["field"]})
    (folder / "rules.toml").write_text(RULES)
    return folder


def check(folder, *args: str):
    """Exit code and answer."""
    done = headrace(
        "access", "check", "--config", str(folder / "rules.toml"), "--data", str(folder / "data"),
        *args, "--json",
    )  # fmt: skip
    return done.returncode, json.loads(done.stdout) if done.stdout else done.stderr


INSIDE = ("--address", "10.1.2.3")


@pytest.mark.parametrize(
    ("args", "number", "hole"),
    [
        (("--user=meter-1", "publish", "field/meter-1/power"), 3, None),
        (("--user=meter-1", "publish", "field/meter-2/power"), 0, None),
        (("--user=meter-1", "will", "field/meter-1"), 3, None),
        (("--user=meter-1", "--client-id=c", "publish", "by-id/c"), 3, None),
        (("--user=bob", "--role=field", "publish", "field/bob/x"), 3, None),
        (("--user=bob", "publish", "field/bob/x"), 0, None),
        (("--user=ann", "subscribe", "secret/x"), -1, None),
        (("--user=ann", "subscribe", "#"), 2, 1),
        (("--user=bob", "subscribe", "$share/g/a/+", *INSIDE), 4, None),
        (("--user=bob", "subscribe", "a/+"), 0, None),
        (("subscribe", "a", *INSIDE), 4, None),
        (("--user=bob", "read", "secret", *INSIDE), -1, None),
        (("--user=bob", "read", "open", *INSIDE), 4, None),
        (("--user=bob", "describe", "open", *INSIDE), 4, None),
        (("--user=bob", "write", "open", *INSIDE), 0, None),
        (("--user=bob", "read", "--group", "bob-1", *INSIDE), 4, None),
        (("--user=bob", "read", "--group", "ann-1", *INSIDE), 0, None),
    ],
)
def test_the_rule_that_decides_is_named(folder, args, number, hole):
    """`number` is negative where the rule denies, and 0 where there is none, which denies."""
    code, answer = check(folder, *args)
    lines = [
        number + 1 for number, line in enumerate(RULES.splitlines()) if line == "[[access.rules]]"
    ]
    place = f"{folder / 'rules.toml'}:{lines[abs(number) - 1]}"
    rule = {"number": abs(number), "place": place} if number else None
    assert (code, answer["allowed"], answer["rule"]) == (int(number <= 0), number > 0, rule)
    assert (answer["hole"] or {"number": None})["number"] == hole


def test_what_no_rule_decides_is_told(folder):
    code, answer = check(folder, "--user=bob", "connect")
    assert (code, answer["why"]) == (0, "no rule is about it, and who is let in may connect")
    code, answer = check(folder, "--user=bbo", "connect")
    assert (code, answer["why"]) == (1, "there is no user 'bbo'; did you mean 'bob'?")
    code, answer = check(folder, "--user=ann", "publish", "$SYS/x")
    assert (code, answer["rule"]) == (1, None)
    (folder / "none").mkdir()
    done = headrace("access", "check", "--user=ann", "publish", "x", "--data", str(folder / "none"))
    assert (done.returncode, done.stdout) == (
        0, "allowed: there are neither users nor rules, so everybody may do everything\n",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("args", "is_allowed", "why"),
    [
        (("--user=ann", "read", "__mqtt"), True, "rule 2"),
        (("--user=bob", "read", "__mqtt", *INSIDE), False, "for admins alone"),
        (("describe", "__offsets", *INSIDE), False, "for admins alone"),
    ],
)
def test_the_node_s_own_streams_are_for_admins(folder, args, is_allowed, why):
    code, answer = check(folder, *args)
    assert (code, answer["allowed"]) == (int(not is_allowed), is_allowed)
    assert why in answer["why"]


@pytest.mark.parametrize(
    ("args", "told"),
    [
        (("publish", "a/#"), "+ and # are for subscriptions alone"),
        (("subscribe", "a/#/b"), "# must stand alone"),
        (("publish",), "publish needs a NAME"),
        (("connect", "x"), "connect takes no NAME"),
        (("read", "a b"), "a b"),
        (("write", "__mqtt"), "names that begin with '__' are the node's own"),
        (("write", "--group", "g"), "a consumer group is read or described"),
        (("connect", "--address", "host"), "is no IP address"),
        (("paint", "x"), "'paint' is not one of"),
    ],
)
def test_what_nobody_could_ask_is_wrong_use(folder, args, told):
    code, error = check(folder, *args)
    assert code == 2
    assert told in error


def test_a_node_decides_the_same(folder, start_node):
    node = start_node("--config", str(folder / "rules.toml"), data=folder / "data")
    with connected(node.mqtt, "meter-1:disc") as meter, connected(node.mqtt, ADMIN) as ann:
        for client, user, action, topic in [
            (meter, "meter-1", "publish", "field/meter-1/power"),
            (meter, "meter-1", "publish", "field/meter-2/power"),
            (ann, "ann", "subscribe", "#"),
            (ann, "ann", "subscribe", "secret/x"),
        ]:
            code = getattr(client, action)(topic)
            assert check(folder, f"--user={user}", action, topic)[0] == int(code >= 0x80)
