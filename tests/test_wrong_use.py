"""What cannot be meant is refused with a line that says so, and changes nothing."""

import pytest

from conftest import headrace

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


def refused(command, told):
    done = headrace(*command)
    assert (done.returncode, done.stdout) == (2, ""), done.stderr
    assert told in done.stderr
    assert len(done.stderr.splitlines()) <= 3
