"""ACLs: the machine against what Kafka's authorizer says, then a node with admin clients."""

import json

import kafka.admin
import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)
from hypothesis import given
from hypothesis import strategies as st

from conftest import RunningNode, headrace
from headrace.config import AccessSettings
from headrace.errors import InvalidAclError
from headrace.kernel import acls
from headrace.kernel.acls import Acl, Filter, Operation, Pattern, Permission, Resource
from headrace.native import Principal
from headrace.node.access import compiled
from headrace.wire.kafka import acls as m
from headrace.wire.kafka import apis
from headrace.wire.kafka.errors import ErrorCode
from headrace.wire.kafka.sasl import SaslAuthenticateRequest, SaslHandshakeRequest
from kafkaraw import RawConnection
from test_access import ADMIN, basic, put_users
from test_access_kafka import produced, settings

# --- the machine ---------------------------------------------------------------------------------

NAMES = ["a", "ab", "b", "*"]
USERS = ["ann", "bob", "*"]
HOSTS = ["10.0.0.1", "10.0.0.2", "*"]


@st.composite
def one_acl(draw):
    resource = draw(st.sampled_from(Resource))
    operations = [each for each in Operation if (resource, each) != (Resource.GROUP, 4)]
    pattern = draw(st.sampled_from(Pattern))
    names = NAMES if pattern is Pattern.LITERAL else NAMES[:3]
    return acls.checked(
        resource,
        pattern,
        draw(st.sampled_from(names)),
        f"User:{draw(st.sampled_from(USERS))}",
        draw(st.sampled_from(HOSTS)),
        draw(st.sampled_from(operations)),
        draw(st.sampled_from(Permission)),
    )


def authorized(held, resource, name, user, host, operation, everybody):
    """As Kafka's authorizer says it: any that denies, then any that allows, then whoever may."""
    about = [
        acl
        for acl in held
        if acl.resource is resource
        and (
            name.startswith(acl.name)
            if acl.pattern is Pattern.PREFIXED
            else acl.name in {name, "*"}
        )
    ]
    if not about:
        if resource is Resource.GROUP and not any(acl.resource is resource for acl in held):
            return True  # groups are everybody's until a rule names some
        return everybody
    mine = [acl for acl in about if acl.user in {user, "*"} and acl.host in {host, "*"}]
    denies = [acl.operation for acl in mine if acl.permission is Permission.DENY]
    allows = [acl.operation for acl in mine if acl.permission is Permission.ALLOW]
    if operation in denies or Operation.ALL in denies:
        return False
    implied = {Operation.READ, Operation.WRITE} if operation is Operation.DESCRIBE else set()
    return bool({operation, Operation.ALL, *implied} & set(allows))


@given(st.lists(one_acl(), max_size=6), st.booleans())
def test_rules_say_what_kafkas_authorizer_says(held, everybody):
    access = AccessSettings(no_match="allow" if everybody else "deny")
    rules = compiled(access, held)
    for name in ("a", "ab", "abc", "b", "c"):
        for user in ("ann", "bob", "eve"):
            for host in ("10.0.0.1", "10.0.0.3"):
                principal = Principal(user, [], host)
                for operation in (Operation.READ, Operation.WRITE, Operation.DESCRIBE):
                    action = operation.name.lower()
                    said = rules.check(principal, "", action, name)[0]
                    asked = (name, user, host, operation, everybody)
                    assert said == authorized(held, Resource.TOPIC, *asked), asked
                    if operation is not Operation.WRITE:
                        said = rules.check_group(principal, "", action, name)[0]
                        assert said == authorized(held, Resource.GROUP, *asked), asked


def test_rules_of_the_configuration_stand_before_all_acls():
    deny = {"deny": ["write"], "streams": ["a"], "users": ["ann"]}
    allow = Acl(Resource.TOPIC, Pattern.LITERAL, "*", "*", "*", Operation.ALL, Permission.ALLOW)
    rules = compiled(AccessSettings.model_validate({"rules": [deny]}), [allow])
    ann = Principal("ann", [], None)
    assert not rules.check(ann, "", "write", "a")[0]
    assert rules.check(ann, "", "write", "b")[0]
    assert not rules.check(ann, "", "publish", "t")[0], "ACLs are about no MQTT topics"


TOPIC_ACL = (2, 3, "s", "User:ann", "*", 3, 3)


@pytest.mark.parametrize(
    ("at", "value", "why"),
    [
        (0, 4, "not about a cluster"),
        (0, 5, "not about a transactional id"),
        (0, 1, "topics and groups"),
        (1, 1, "literal or prefixed"),
        (1, 2, "literal or prefixed"),
        (2, "", "named without"),
        (2, "a*", "named without"),
        (2, "{username}", "braces"),
        (3, "ann", "User:NAME"),
        (3, "Group:g", "User:NAME"),
        (3, "User:", "User:NAME"),
        (3, "User:a*", "named without"),
        (4, "example.org", "an IP address"),
        (4, "10.0.0.0/8", "an IP address"),
        (5, 1, "operation 1"),
        (5, 5, "create is what users with the role admin"),
        (5, 11, "alter configs is what"),
        (6, 1, "allows or denies"),
        (6, 0, "allows or denies"),
    ],
)
def test_what_no_rule_can_say_is_refused_in_a_line(at, value, why):
    parts = list(TOPIC_ACL)
    acls.checked(*parts)
    parts[at] = value
    with pytest.raises(InvalidAclError, match=why) as refused:
        acls.checked(*parts)
    assert "\n" not in str(refused.value)


def test_nobody_writes_to_a_group():
    with pytest.raises(InvalidAclError, match="read or described"):
        acls.checked(3, 3, "g", "User:ann", "*", 4, 3)


@given(
    st.tuples(
        st.integers(-1, 8),
        st.integers(-1, 5),
        st.text(max_size=5) | st.just("*"),
        st.text(max_size=5).map("User:{}".format),
        st.sampled_from(["*", "::1", "10.0.0.1", "x"]),
        st.integers(-1, 16),
        st.integers(-1, 4),
    )
)
def test_an_acl_is_refused_or_becomes_a_rule(asked):
    try:
        acl = acls.checked(*asked)
    except InvalidAclError:
        return
    assert len(compiled(AccessSettings(), [acl])) == 2


def test_filters_find_what_kafkas_find():
    held = [
        acls.checked(2, pattern, name, "User:ann", "*", 3, 3)
        for pattern, name in ((3, "ab"), (3, "*"), (4, "a"), (4, "b"))
    ]

    def found(**asked):
        return [acl.names for acl in held if Filter(**asked).is_about(acl)]

    assert found() == ["ab", "*", "a*", "b*"]
    assert found(pattern=acls.MATCH, name="ab") == ["ab", "*", "a*"]
    assert found(pattern=Pattern.LITERAL, name="ab") == ["ab"]
    assert found(pattern=Pattern.PREFIXED) == ["a*", "b*"]
    assert found(pattern=acls.ANY, name="a") == ["a*"]
    assert found(pattern=acls.MATCH) == ["ab", "*", "a*", "b*"]
    assert found(principal="User:bob") == found(host="10.0.0.1") == found(operation=4) == []
    assert found(resource=3) == found(permission=2) == []
    for wrong in (Filter(resource=0), Filter(pattern=5), Filter(permission=4)):
        with pytest.raises(InvalidAclError):
            acls.checked_filter(wrong)


# --- a node --------------------------------------------------------------------------------------


def binding(kind, name, principal, operation, permission=AclPermissionType.ALLOW, **more):
    pattern = more.get("pattern", ResourcePatternType.LITERAL)
    return AclBinding(kind, name, pattern, principal, more.get("host", "*"), operation, permission)


ANY_ACL = AclBindingFilter(
    ResourceType.ANY, None, ResourcePatternType.ANY, None, None, AclOperation.ANY,
    AclPermissionType.ANY,
)  # fmt: skip


def create(admin, *bindings):
    """For each, 0 or the code and the text of its refusal."""
    ends = []
    for future in admin.create_acls(list(bindings)).values():
        try:
            future.result(30)
        except KafkaException as error:
            ends.append((error.args[0].code(), error.args[0].str()))
        else:
            ends.append(0)
    return ends


def names(admin):
    return sorted(each.name for each in admin.describe_acls(ANY_ACL).result(30))


@pytest.fixture
def guarded(tmp_path):
    put_users(tmp_path / "data", {ADMIN: ["admin"], "bob:cart": []})
    node = RunningNode(tmp_path / "data")
    yield node
    node.close()


def stream(node, name):
    assert node.call("POST", "/api/v1/streams", {"name": name}, **basic(ADMIN))[0] == 201


@pytest.mark.shows("confluent-kafka", "ACLs")
@pytest.mark.slow
@pytest.mark.clients
def test_acls_hold_at_once_and_survive_kill_9(guarded):
    stream(guarded, "open")
    stream(guarded, "mine")
    stream(guarded, "team-1")
    admin = AdminClient(settings(guarded, ADMIN))
    topic, group = ResourceType.TOPIC, ResourceType.GROUP
    assert produced(guarded, "bob:cart", "mine") == ""
    assert (
        create(
            admin,
            binding(topic, "mine", "User:ann", AclOperation.ALL),
            binding(
                topic, "team-", "User:bob", AclOperation.WRITE, pattern=ResourcePatternType.PREFIXED
            ),
            binding(topic, "team-1", "User:bob", AclOperation.READ, AclPermissionType.DENY),
            binding(group, "g", "User:*", AclOperation.READ),
        )
        == [0] * 4
    )
    denied = "TOPIC_AUTHORIZATION_FAILED"
    assert produced(guarded, "bob:cart", "mine") == denied
    assert produced(guarded, "bob:cart", "team-1") == ""
    assert produced(guarded, "bob:cart", "open") == "", "access.no_match is allow"
    assert produced(guarded, ADMIN, "mine") == ""
    guarded.kill()
    again = guarded.restarted()
    try:
        admin = AdminClient(settings(again, ADMIN))
        assert names(admin) == ["g", "mine", "team-", "team-1"]
        assert produced(again, "bob:cart", "mine") == denied
        check = ["access", "check", "--data", str(guarded.data), "--user", "bob"]
        done = headrace(*check, "write", "mine", "--json")
        assert done.returncode == 1
        told = json.loads(done.stdout)
        assert told["rule"]["place"] == str(guarded.data / "acls.json")
        assert "deny the others topic mine" in told["why"]
        assert headrace(*check, "write", "team-1").returncode == 0
        wanted = AclBindingFilter(
            topic, "mine", ResourcePatternType.LITERAL, None, None, AclOperation.ANY,
            AclPermissionType.ANY,
        )  # fmt: skip
        (future,) = admin.delete_acls([wanted]).values()
        assert [each.name for each in future.result(30)] == ["mine"]
        assert produced(again, "bob:cart", "mine") == ""
        assert names(admin) == ["g", "team-", "team-1"]
    finally:
        again.close()


@pytest.mark.slow
@pytest.mark.clients
def test_what_cannot_be_said_is_refused_alone_and_others_hold(guarded):
    admin = AdminClient(settings(guarded, ADMIN))
    made, create_topic, cluster = create(
        admin,
        binding(ResourceType.TOPIC, "s", "User:bob", AclOperation.DESCRIBE),
        binding(ResourceType.TOPIC, "s", "User:bob", AclOperation.CREATE),
        binding(ResourceType.BROKER, "kafka-cluster", "User:bob", AclOperation.ALL),
    )
    assert made == 0
    for code, text in (create_topic, cluster):
        assert code == KafkaError.INVALID_REQUEST
        assert "role admin" in text
    assert names(admin) == ["s"]


@pytest.mark.slow
@pytest.mark.clients
def test_acls_are_for_admins(guarded):
    client = AdminClient(settings(guarded, "bob:cart"))
    denied = KafkaError.CLUSTER_AUTHORIZATION_FAILED
    ((code, why),) = create(client, binding(ResourceType.TOPIC, "s", "User:bob", AclOperation.ALL))
    assert (code, "role admin" in why) == (denied, True)
    with RawConnection(guarded) as raw:  # librdkafka shows none, and not why
        raw.call(apis.SASL_HANDSHAKE, SaslHandshakeRequest(mechanism="PLAIN"))
        raw.call(apis.SASL_AUTHENTICATE, SaslAuthenticateRequest(auth_bytes=b"\0bob\0cart"))
        wanted = m.DescribeAclsRequest(
            resource_type=1, resource_name=None, principal=None, host=None, operation=1,
            permission_type=1,
        )  # fmt: skip
        assert raw.call(apis.DESCRIBE_ACLS, wanted).error_code == denied
    (deleted,) = client.delete_acls([ANY_ACL]).values()
    with pytest.raises(KafkaException) as refused:
        deleted.result(30)
    assert refused.value.args[0].code() == denied


@pytest.mark.parametrize("version", [0, 1])
@pytest.mark.slow
@pytest.mark.clients
def test_a_node_without_users_has_no_acls(shared, version):
    asked = {"resource_type": 2, "resource_name": "s", "operation": 3, "permission_type": 3}
    with RawConnection(shared) as raw:
        creation = m.AclCreation(**asked, principal="User:a", host="*")
        answer = raw.call(apis.CREATE_ACLS, m.CreateAclsRequest(creations=[creation]), version)
        assert answer.results[0].error_code == ErrorCode.SECURITY_DISABLED
        assert "headrace users add" in answer.results[0].error_message
        wanted = m.AclFilter(**asked, principal=None, host=None)
        answer = raw.call(apis.DELETE_ACLS, m.DeleteAclsRequest(filters=[wanted]), version)
        assert answer.filter_results[0].error_code == ErrorCode.SECURITY_DISABLED
        wanted = m.DescribeAclsRequest(**asked, principal=None, host=None)
        answer = raw.call(apis.DESCRIBE_ACLS, wanted, version)
        assert answer.error_code == ErrorCode.SECURITY_DISABLED
    assert not (shared.data / "acls.json").exists()


@pytest.mark.shows("kafka-python", "ACLs")
@pytest.mark.slow
@pytest.mark.clients
def test_kafka_python_manages_acls(guarded):
    client = kafka.admin.KafkaAdminClient(
        bootstrap_servers=guarded.servers,
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism="SCRAM-SHA-256",
        sasl_plain_username="ann",
        sasl_plain_password="horse",
    )
    pattern = kafka.admin.ResourcePattern(kafka.admin.ResourceType.TOPIC, "s")
    acl = kafka.admin.ACL(
        principal="User:bob",
        host="*",
        operation=kafka.admin.ACLOperation.READ,
        permission_type=kafka.admin.ACLPermissionType.ALLOW,
        resource_pattern=pattern,
    )
    client.create_acls([acl])
    assert "bob" in str(client.describe_acls(acl))
    client.delete_acls([acl])
    assert "bob" not in str(client.describe_acls(acl))
    client.close()


@pytest.mark.slow
@pytest.mark.clients
def test_so_many_acls_and_no_more(guarded):
    admin = AdminClient(settings(guarded, ADMIN))

    def bindings(first, last):
        return [
            binding(ResourceType.TOPIC, f"s-{number}", "User:bob", AclOperation.READ)
            for number in range(first, last)
        ]

    most = 2048  # each is a rule, and closes what it is about: 4,096 rules
    assert set(create(admin, *bindings(0, most))) == {0}
    ((code, why),) = create(admin, *bindings(most, most + 1))
    assert (code, "more than 4096 rules" in why) == (KafkaError.INVALID_REQUEST, True)
    assert len(names(admin)) == most


@pytest.mark.parametrize("text", ["{", '{"acls": [1]}', '{"acls": [{"resource": "x"}]}'])
@pytest.mark.slow
@pytest.mark.clients
def test_a_damaged_file_stops_the_start_with_a_line(tmp_path, text):
    put_users(tmp_path / "data", {ADMIN: ["admin"]})
    (tmp_path / "data" / "acls.json").write_text(text)
    done = headrace("serve", "--data", str(tmp_path / "data"), "--mqtt", "127.0.0.1:0")
    assert done.returncode != 0
    assert "acls.json is damaged" in done.stderr
    assert "Traceback" not in done.stderr
