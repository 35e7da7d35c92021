"""Commands and libraries at a node that asks for user and password."""

import json
import pickle
import shlex
import subprocess
import sys

import pytest
from pyspark.errors import PySparkException

from conftest import RunningNode, environment, headrace
from headrace import pipeline
from headrace.client import ClientError, FetchClient, Login
from headrace.client.login import Proof
from headrace.spark.errors import OptionError, explain
from headrace.spark.options import parse
from test_access import ADMIN, basic, put_users

pytestmark = pytest.mark.slow

CSV = """timestamp,metric_name,gpu_id,device,uuid,modelName,Hostname,value
2026-01-01 00:00:00,DCGM_FI_DEV_POWER_USAGE,0,nvidia0,GPU-1,H200,host,100
"""


@pytest.fixture(scope="module")
def guarded(tmp_path_factory):
    folder = tmp_path_factory.mktemp("login")
    put_users(folder / "data", {ADMIN: ["admin"], "bob:cart": []})
    (folder / "word").write_text("horse\nnot this\n")
    (folder / "some.csv").write_text(CSV)
    node = RunningNode(folder / "data")
    node.folder = folder
    node.password_file = f"--password-file={folder / 'word'}"
    yield node
    node.close()


def test_a_command_calls_a_node_as_a_user(guarded):
    url = f"--url=http://127.0.0.1:{guarded.http}"
    by_name = f"--url=http://ann@127.0.0.1:{guarded.http}"
    for args, extra in [
        ((url, "--user=ann", guarded.password_file), {}),
        ((by_name, guarded.password_file), {}),
        ((url, "--user=ann"), {"HEADRACE_PASSWORD": "horse"}),
        ((url, guarded.password_file), {"HEADRACE_USER": "ann"}),
        ((by_name,), {"HEADRACE_PASSWORD": "horse", "HEADRACE_USER": "bob"}),
    ]:
        for command in (("sessions", "list"), ("streams", "list"), ("users", "list")):
            done = headrace(*command, *args, "--json", **extra)
            assert done.returncode == 0, (command, args, done.stderr)
    for args, told in [
        ((url,), "authentication"),
        ((url, "--user=ann"), "the password of ann is missing; set HEADRACE_PASSWORD"),
        ((url, guarded.password_file), "--password-file needs --user"),
        ((url, "--user=ann", "--password-file=/nonexistent"), "/nonexistent: cannot be read"),
    ]:
        done = headrace("sessions", "list", *args)
        assert done.returncode in {1, 2}
        assert done.stderr.count("\n") <= 3
        assert told in done.stderr or told == "authentication"


def test_what_is_typed_comes_before_the_environment(guarded):
    url = f"http://bob@127.0.0.1:{guarded.http}"
    typed = ("--user=ann", guarded.password_file)
    done = headrace("queues", "list", *typed, HEADRACE_URL=url)
    assert done.returncode == 0, done.stderr
    done = headrace("queues", "list", guarded.password_file, HEADRACE_URL=url, HEADRACE_USER="ann")
    assert (done.returncode, done.stderr) == (
        1, "headrace: user name or password is wrong (user bob)\n"
    )  # fmt: skip


def test_a_password_that_can_be_read_once_is_enough(guarded):
    url = f"--url=http://127.0.0.1:{guarded.http}"
    command = shlex.join([sys.executable, "-m", "headrace", "queues", "describe", "none", url])
    done = subprocess.run(
        ["bash", "-c", f"{command} --user ann --password-file <(echo horse)"],
        capture_output=True, text=True, check=False, env=environment(), timeout=60,
    )  # fmt: skip
    assert done.returncode == 1
    assert done.stderr.startswith("headrace: no queue is named 'none'"), "it calls the node twice"


def test_an_admin_gives_a_password_and_has_one(guarded):
    url = f"--url=http://127.0.0.1:{guarded.http}"
    own = f"--admin-password-file={guarded.folder / 'word'}"
    new = guarded.folder / "new"
    new.write_text("apple")
    args = (url, "--user=ann", own, f"--password-file={new}")
    assert headrace("users", "add", "eve", *args).stdout == "added eve\n"
    assert guarded.call("GET", "/api/v1/streams", **basic("eve:apple"))[0] == 200


def test_the_collector_and_pub_are_somebody(guarded):
    broker = f"--mqtt=127.0.0.1:{guarded.mqtt}"
    file = str(guarded.folder / "some.csv")
    done = headrace("collect", "csv", file, broker, "--user=ann", guarded.password_file, "--json")
    assert json.loads(done.stdout)["acknowledged"] == 1, done.stderr
    bob = {"HEADRACE_USER": "bob", "HEADRACE_PASSWORD": "cart"}
    done = headrace("collect", "csv", file, broker, "--json", **bob)
    assert json.loads(done.stdout)["acknowledged"] == 1, done.stderr
    done = headrace("pub", broker, "-q", "1", "-t", "t", "-m", "x", **bob)
    assert done.returncode == 0, done.stderr
    done = headrace("pub", broker, "-t", "t", "-m", "x", "--user=ann", guarded.password_file)
    assert done.returncode == 0, done.stderr
    wrong = {"HEADRACE_USER": "bob", "HEADRACE_PASSWORD": "horse"}
    done = headrace("collect", "csv", file, broker, **wrong)
    assert done.returncode == 1
    assert "refuses the collector" in done.stderr
    assert "horse" not in done.stderr


def test_a_client_of_streams_is_somebody(guarded):
    login = Login("ann", "horse")
    assert "horse" not in repr(login)
    with FetchClient(guarded.servers, login=login, timeout_s=30) as client:
        assert client.partitions("gpu-telemetry") == 12
        with pickle.loads(pickle.dumps(client)) as copy:
            assert copy.partitions("gpu-telemetry") == 12
    with FetchClient(guarded.servers, login=Login("ann", "cart"), timeout_s=30) as client:
        with pytest.raises(ClientError, match="user name or password is wrong") as caught:
            client.partitions("gpu-telemetry")
        assert not caught.value.retriable


def test_who_gives_no_user_is_asked_for_one(guarded):
    told = pytest.raises(ClientError, match="does it ask for a user and a password")
    with FetchClient(guarded.servers, timeout_s=0.1) as client, told:
        client.partitions("gpu-telemetry")


def test_rfc_5802_a_server_that_does_not_know_the_password_is_found_out():
    proof = Proof(Login("a=b,c", "pencil"), "nonce")
    assert proof.first() == b"n,,n=a=3Db=2Cc,r=nonce"
    for answer in (
        b"",
        b"r=other,s=c2FsdA==,i=4096",
        b"r=nonce1,s=?,i=4096",
        b"r=nonce1,s=c2Fs,i=1",
    ):
        with pytest.raises(ClientError, match="authentication"):
            proof.final(answer)
    proof.final(b"r=nonce1,s=c2FsdA==,i=4096")
    with pytest.raises(ClientError, match="does not know the user"):
        proof.check(b"v=c2FsdA==")


def test_rfc_7677_the_example_of_the_standard():
    proof = Proof(Login("user", "pencil"), "rOprNGfwEbeRWgbNEkqO")
    answer = (
        b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
    )
    final = proof.final(answer)
    assert final.endswith(b"p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=")
    proof.check(b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=")


def test_options_of_spark_name_user_and_password_and_show_no_secret():
    given = {"servers": "127.0.0.1:1", "stream": "s", "user": "ann", "password": "horse"}
    options = parse(given, "batch")
    assert options.login == Login("ann", "horse")
    assert "horse" not in repr(options)
    for lacking in ("user", "password"):
        less = {name: value for name, value in given.items() if name != lacking}
        with pytest.raises(OptionError, match="belong together") as caught:
            parse(less, "batch")
        assert "horse" not in str(caught.value)


@pytest.mark.spark
def test_spark_reads_as_a_user_and_explains_no_secret(guarded, spark, capfd, tmp_path):
    body = {"topic": "dcgm/h/g/m", "payload": "x"}
    assert guarded.call("POST", "/api/v1/publish", body, **basic(ADMIN))[0] == 200
    frame = (
        spark.read.format("headrace")
        .options(servers=guarded.servers, stream="gpu-telemetry", user="ann", password="horse")
        .load()
    )
    assert frame.count() >= 1
    frame.explain(extended=True)
    told = "".join(capfd.readouterr())
    assert "headrace" in told.lower()
    assert "horse" not in told
    totals = pipeline.run(
        spark,
        guarded.servers,
        "gpu-telemetry",
        tmp_path / "tables",
        tmp_path / "checkpoint",
        login=Login("ann", "horse"),
    )
    assert totals.quarantined >= 1


@pytest.mark.spark
def test_spark_writes_as_a_user_who_is_no_admin_and_tidies_up(guarded, spark):
    body = {"name": "written", "partitions": 2}
    assert guarded.call("POST", "/api/v1/streams", body, **basic(ADMIN))[0] == 201
    rows = spark.range(10).selectExpr("cast(id AS string) AS value")
    writer = rows.write.format("headrace").mode("append")
    to = {"servers": guarded.servers, "stream": "written"}
    writer.options(**to, user="bob", password="cart").save()
    with pytest.raises(PySparkException) as refused:
        writer.options(**to, user="bob", password="wrong").save()
    assert "user name or password is wrong" in explain(refused.value)
    with FetchClient(guarded.servers, login=Login("bob", "cart")) as client:
        assert sum(client.latest_offsets("written").values()) == 10
    status, answer = guarded.call("GET", "/api/v1/groups", **basic(ADMIN))
    # Its intents are gone; that the write is over is kept (ADR 0085).
    assert (status, [each["group"] for each in answer["groups"]]) == (200, ["headrace-sink-over"])
