"""What cannot be meant is refused with a line that says so, and changes nothing."""

import os
import subprocess
import sys

import pytest

from conftest import environment, headrace

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(
    ("command", "told"),
    [
        ("users list --data nowhere", "--data nowhere: no such folder"),
        ("users remove ann --data nowhere", "--data nowhere: no such folder"),
        ("users list --file nowhere", "--file nowhere: no such file"),
        ("users list --data=", "the path is empty"),
        ("users add ann --certificate --role a/b --data new", "role 'a/b': must be"),
        ("users add a/b --certificate --role admin --data new", "user name 'a/b': must be"),
        ("users add ann --certificate --data new", "nobody could manage the node"),
        ("access check connect --data nowhere", "--data nowhere: no such folder"),
        ("log verify --data=", "the path is empty"),
        ("serve --config=", "the path is empty"),
        ("sessions list --connected --away", "contradict each other"),
        ("bench mqtt --publishers 0 --subscribers 0", "no connection is asked for"),
        ("bench mqtt --duration 0s", "nothing is measured in no time"),
        ("bench kafka --duration 0s", "nothing is measured in no time"),
    ],
)
def test_wrong_use_is_exit_2_in_three_lines(tmp_path, monkeypatch, command, told):
    monkeypatch.chdir(tmp_path)
    refused(command.split(), told)
    assert not (tmp_path / "nowhere").exists()


@pytest.mark.parametrize(
    ("command", "told"),
    [
        (["sessions", "list", ""], "client"),
        (["trace", "--client", ""], "client"),
        (["trace", "--topic", ""], "empty"),
        (["retained", "list", ""], "empty"),
    ],
)
def test_a_name_that_is_empty_is_not_everything(shared, command, told):
    refused([*command, "--url", f"http://127.0.0.1:{shared.http}"], told)


@pytest.mark.parametrize(
    ("command", "told"),
    [
        (
            "log verify --data nowhere",
            "--data nowhere: no such folder; give the folder of a stopped",
        ),
        ("log dump --data nowhere", "--data nowhere: no such folder; give the folder of a"),
        (
            "log repair --data nowhere",
            "--data nowhere: no such folder; give the folder of a stopped",
        ),
        ("log verify --data file", "--data file: it is a file, and a folder is needed"),
        (
            "log repair --data empty",
            "--data empty: it is no node's, for it has neither streams/ nor",
        ),
        ("users list --data broken", "broken/users.json is damaged (the file: Invalid JSON"),
        ("users list --file broken/users.json", "users.json is damaged (the file: Invalid JSON"),
        ("users list --file empty", "empty cannot be read: Is a directory"),
        ("users list --data file", "--data file: it is a file, and a folder is needed"),
        ("users add ann --certificate --role admin --data broken", "users.json is damaged"),
        ("users add ann --certificate --role admin --data file", "--data file: it is a file"),
        ("users add ann --certificate --role admin --file nowhere/u", "--file nowhere: no such"),
        ("access check --data broken --user ann publish x", "users.json is damaged"),
        ("access check --data file connect", "--data file: it is a file, and a folder is needed"),
        ("serve --data file", "the data folder file: File exists; name another with --data"),
        ("serve --data broken", "broken/users.json is damaged (the file: Invalid JSON"),
        ("simulate fleet --out nowhere/x.csv", "nowhere/x.csv: No such file or directory"),
        ("simulate fleet --out x.csv --truth empty", "empty: Is a directory"),
        pytest.param(
            "pipeline status --tables empty",
            "tables empty: none are there yet; name the folder that the pipeline writes",
            marks=pytest.mark.spark,
        ),
        pytest.param(
            "pipeline status --tables torn",
            "torn/_manifest/00000000000000000003.json: not a readable manifest",
            marks=pytest.mark.spark,
        ),
        pytest.param(
            "pipeline run --tables file --checkpoint new",
            "tables file: it is a file, and a folder is needed; name a folder that is there or can",
            marks=pytest.mark.spark,
        ),
        pytest.param(
            "pipeline run --tables new --checkpoint file/below",
            "checkpoint file/below: it is a file, and a folder is needed",
            marks=pytest.mark.spark,
        ),
    ],
)
def test_what_cannot_be_read_is_exit_2_and_named(tmp_path, monkeypatch, command, told):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("no folder")
    (tmp_path / "empty").mkdir()
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken/users.json").write_text("{broken")
    (tmp_path / "torn/_manifest").mkdir(parents=True)
    (tmp_path / "torn/_manifest/00000000000000000003.json").write_text("{")
    refused(command.split(), told)
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(
    "command",
    ["log verify --data", "users list --data", "access check connect --data"],
)
def test_what_may_not_be_read_is_exit_2(tmp_path, command):
    closed = tmp_path / "closed"
    (closed / "streams").mkdir(parents=True)
    closed.chmod(0)
    done = subprocess.run(
        [*unprivileged(), sys.executable, "-m", "headrace", *command.split(), closed / "streams"],
        env=environment(), capture_output=True, text=True, check=False,
    )  # fmt: skip
    closed.chmod(0o700)
    assert done.returncode == 2, done.stderr
    assert "Permission denied; give" in done.stderr


def unprivileged():
    """What goes before a command so that modes of files bind it, the superuser's too.

    It stays who it is: another user might not reach the interpreter.
    """
    if os.geteuid() != 0:
        return []
    return ["setpriv", "--bounding-set=-dac_override,-dac_read_search"]


def refused(command, told):
    done = headrace(*command)
    assert (done.returncode, done.stdout) == (2, ""), done.stderr
    assert told in done.stderr
    assert len(done.stderr.splitlines()) <= 3
