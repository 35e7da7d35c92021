"""Which folders a node takes as its own, and what it leaves alone there."""

import shutil

import pytest

from conftest import headrace
from headrace.adapters import data_folder
from headrace.errors import StartError
from headrace.native import Store

NOBODY_S = [
    (),
    ("lost+found/",),
    ("users.json", "users.json.lock"),
    ("acls.json", "acls.json.tmp", "headrace.toml", ".gitkeep"),
]
SOMEBODY_S = [
    ("passwd",),
    ("lost+found/", "photos/"),
    (".bashrc",),
    ("trash/photos/",),
    ("journal/0123456789abcdef/",),  # systemd's
    ("streams/notes.txt",),
    ("10-network.conf", "99-sysctl.conf"),  # /etc/sysctl.d
    ("package.json", "tsconfig.json"),
    ("privkey.pem", "ssl-cert.key"),
    ("users.json", "people.json"),
]


def fill(folder, names):
    folder.mkdir(exist_ok=True)
    for name in names:
        path = folder / name
        if name.endswith("/"):
            path.mkdir(parents=True)
        else:
            path.parent.mkdir(exist_ok=True)
            path.touch()
    return folder


@pytest.mark.parametrize("names", NOBODY_S)
def test_a_folder_of_nobody_s_is_taken(tmp_path, names):
    data_folder.check(fill(tmp_path, names))


def test_files_that_a_node_was_told_to_use_are_not_somebody_s(tmp_path):
    data = fill(tmp_path / "data", ("people.json", "people.json.lock", "certificates/node.pem"))
    (tmp_path / "link").symlink_to(data)
    named = [tmp_path / "link" / "people.json", tmp_path / "elsewhere.key", data]
    with pytest.raises(StartError, match="holds 'certificates', and nothing"):
        data_folder.check(data, named)
    data_folder.check(data, [*named, data / "certificates" / "node.pem"])


@pytest.mark.parametrize("names", SOMEBODY_S)
def test_a_folder_of_somebody_s_is_refused(tmp_path, names):
    with pytest.raises(StartError, match="nothing of a node: name an empty folder with --data"):
        data_folder.check(fill(tmp_path, names))


@pytest.mark.parametrize("lost", [(), ("headrace.lock",), ("headrace.lock", "streams")])
def test_a_folder_that_has_been_a_node_s_is_taken_with_all_that_is_beside(tmp_path, lost):
    Store.open(str(tmp_path)).close()
    fill(tmp_path, ("notes.txt", "photos/"))
    for name in lost:
        path = tmp_path / name
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    data_folder.check(tmp_path)


def test_a_node_does_not_begin_in_a_folder_of_somebody_s(tmp_path):
    fill(tmp_path, ("trash/photos/",))
    refused = headrace("serve", "--data", str(tmp_path), "--http", "127.0.0.1:0")
    assert refused.returncode != 0
    assert f"{tmp_path} holds 'trash', and nothing of a node" in refused.stderr
    assert [each.name for each in tmp_path.iterdir()] == ["trash"]


def test_files_of_the_settings_may_be_there_before_the_first_start(tmp_path, start_node):
    data = fill(tmp_path / "data", ("mine.toml", "people.json", "people.json.lock"))
    (data / "mine.toml").write_text(f'[access]\nusers = "{data / "people.json"}"\n')
    (data / "people.json").write_text('{"users": {}}')
    node = start_node("--config", str(data / "mine.toml"), data=data)
    assert node.call("GET", "/ready")[0] == 200


def test_of_the_trash_only_deleted_streams_go(tmp_path):
    Store.open(str(tmp_path)).close()
    fill(tmp_path, ("trash/s.1.2-3/0/", "trash/s.t.1.2/0/", "trash/photos/", "trash/a.1.jpg/"))
    Store.open(str(tmp_path)).close()
    assert {each.name for each in (tmp_path / "trash").iterdir()} == {"photos", "a.1.jpg"}
