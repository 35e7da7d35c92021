"""Data folders on file systems that give less: read-only ones, ones of another owner, ones that run
out of inodes. What needs a mount or the superuser says so where it has none."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from conftest import RunningNode, headrace, wait_for

pytestmark = pytest.mark.slow

OWNER = 65534
"""Nobody, on every Linux."""


@pytest.fixture
def mounted():
    """Mounts with the arguments of mount(8); until the end."""
    places: list[Path] = []

    def mount(*arguments, at: Path) -> Path:
        at.mkdir(exist_ok=True)
        outcome = subprocess.run(["mount", *arguments, at], capture_output=True, check=False)
        if outcome.returncode:
            pytest.skip(f"this user may not mount: {outcome.stderr.decode().strip()}")
        places.append(at)
        return at

    if shutil.which("mount") is None:
        pytest.skip("no mount(8)")
    yield mount
    for place in reversed(places):
        subprocess.run(["umount", place], check=True)


@pytest.fixture(scope="module")
def pristine(tmp_path_factory) -> Path:
    """The folder of a node that was stopped."""
    node = RunningNode(tmp_path_factory.mktemp("pristine") / "data")
    node.create_stream("a", filters=["a"])
    assert publish(node)[0] == 200
    node.close()
    return node.data


@pytest.fixture
def data(pristine, tmp_path) -> Path:
    return shutil.copytree(pristine, tmp_path / "data")


def publish(node):
    return node.call("POST", "/api/v1/publish", {"topic": "a", "payload": "x"})


def log(command, data, *arguments, code=0) -> str:
    ended = headrace("log", command, "--data", str(data), *arguments)
    assert ended.returncode == code, ended.stderr
    return ended.stdout + ended.stderr


def test_a_folder_that_is_mounted_read_only_is_looked_at_and_not_repaired(data, tmp_path, mounted):
    place = mounted("--bind", data, at=tmp_path / "place")
    subprocess.run(["mount", "-o", "remount,bind,ro", place], check=True)
    assert log("verify", place) == "nothing is damaged\n"
    assert "value x" in log("dump", place, "a", "--records")
    assert log("repair", place, "--dry-run") == "nothing to repair\n"
    (data / "streams/a/0/leader-epoch-checkpoint").write_text("")
    assert "is written anew" in log("repair", place, "--dry-run")
    assert "Read-only file system" in log("repair", place, code=1)


def owners(data) -> set[int]:
    return {path.stat().st_uid for path in [data, *data.rglob("*")]}


@pytest.mark.skipif(os.geteuid() != 0, reason="only the superuser gives files away")
def test_the_superuser_leaves_a_folder_to_its_owner(data):
    (data / "headrace.lock").unlink()
    for path in [data, *data.rglob("*")]:
        os.chown(path, OWNER, OWNER)
    # As folders of services are; pytest makes up to three of its own above, and a worker one more.
    for above in data.parents[:4]:
        above.chmod(above.stat().st_mode | 0o011)
    before = sorted(data.rglob("*"))
    assert log("verify", data) == "nothing is damaged\n"
    log("dump", data)
    assert sorted(data.rglob("*")) == before
    shutil.rmtree(data / "journal")
    assert "is made known" in log("repair", data, "--rebuild-journal")
    password = data.with_suffix(".password")
    password.write_text("a password\n")
    for name in ("first", "second"):
        given = ("--data", str(data), "--password-file", str(password), "--role", "admin")
        added = headrace("users", "add", name, *given)
        assert added.returncode == 0, added.stderr
    assert owners(data) == {OWNER}
    assert log("verify", data) == "nothing is damaged\n"


def test_messages_are_refused_before_the_last_inode_is_taken(tmp_path, mounted, start_node):
    place = mounted("-t", "tmpfs", "-o", "size=256M,nr_inodes=500", "tmpfs", at=tmp_path / "place")
    settings = {"HEADRACE_LOG__RESERVE_BYTES": "0", "HEADRACE_NODE__DEFAULT_STREAM": "false"}
    node = start_node(data=place / "data", **settings)
    node.create_stream("a", filters=["a"])
    before = sorted(place.rglob("*"))
    for _ in range(3):  # all of its partitions together are too many
        status, problem = node.call("POST", "/api/v1/streams", {"name": "b", "partitions": 60})
        assert (status, "inodes left, and needs" in problem["detail"]) == (503, True)
    assert sorted(place.rglob("*")) == before
    assert publish(node)[0] == 200
    for at in range(os.statvfs(place).f_favail - 20):
        (place / f"{at}").touch()
    wait_for(lambda: "inodes left" in node.call("GET", "/ready")[1]["reason"])
    status, problem = publish(node)
    assert status == 503
    assert "less than" in problem["detail"]
    assert "inodes left" in problem["detail"]
    status, problem = node.call("POST", "/api/v1/streams", {"name": "b"})
    assert status == 503
    assert "inodes left" in problem["detail"]
    assert node.call("GET", "/ready")[0] == 200
    for path in place.glob("[0-9]*"):
        path.unlink()
    wait_for(lambda: node.call("GET", "/ready")[1]["reason"] == "")
    assert publish(node)[0] == 200
    node.create_stream("b")
