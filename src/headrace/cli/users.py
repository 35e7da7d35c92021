"""`headrace users`: of a running node over HTTP, of a stopped one in its file."""

from __future__ import annotations

import json
import secrets
import sys
from typing import TYPE_CHECKING, Any

import click

from headrace import limits
from headrace.adapters.files import act_as_owner
from headrace.adapters.users import FILE, UserFile
from headrace.cli.client import call, json_option, named, reach, url_option
from headrace.cli.login import first_line
from headrace.cli.paths import NamedPath, folder_to_make, held_folder
from headrace.cli.tables import table
from headrace.errors import InputError
from headrace.kernel import credentials, users

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from headrace.kernel.credentials import User

USERS = "/api/v1/users"

data_option: Callable[[Callable[..., None]], Callable[..., None]] = click.option(
    "--data",
    type=NamedPath(),
    metavar="DIR",
    help="Folder of a stopped node, instead of --url.",
)
file_option: Callable[[Callable[..., None]], Callable[..., None]] = click.option(
    "--file",
    type=NamedPath(),
    metavar="FILE",
    help="The file that access.users names, instead of --url.",
)
password_option: Callable[[Callable[..., None]], Callable[..., None]] = click.option(
    "--password-file",
    type=NamedPath(),
    metavar="FILE",
    help="Its first line is the password; else it is asked for, or read from stdin.",
)

admin_option = reach("--admin-password-file")
"""Where the password of who calls cannot have the name that the new one has."""


@click.group(name="users", short_help="Add, list and remove users; set passwords.")
def group() -> None:
    """Who may use a node: MQTT, Kafka, frames and HTTP have the same users.

    With the first user, who must have the role admin, a node lets nobody in any more without a
    name and a password. Commands reach a running node by --url, where the change holds at once, or
    change the file of a stopped one by --data or --file; a running node reads its file on SIGHUP.

    \b
    As an admin, whose password is asked for, in HEADRACE_PASSWORD, or in a file:
      headrace users list --user ann
      headrace users list --url http://ann@127.0.0.1:8080 --password-file ann.txt
      headrace users add bob --user ann --admin-password-file ann.txt
    """


@group.command()
@click.argument("name")
@click.option("--role", "roles", multiple=True, help="Role; admin may manage the node. [repeat]")
@click.option("--certificate", is_flag=True, help="No password: a certificate says the name.")
@password_option
@data_option
@file_option
@admin_option
@json_option
def add(
    *,
    name: str,
    roles: tuple[str, ...],
    certificate: bool,
    password_file: Path | None,
    data: Path | None,
    file: Path | None,
    url: str,
    as_json: bool,
) -> None:
    """Add a user.

    \b
    Examples:
      headrace users add ann --role admin
      headrace users add meter-7 --role field --password-file meter-7.txt
      pwgen 20 1 | headrace users add meter-8 --data /var/lib/headrace
    """
    password = None if certificate else _password(password_file, name)
    if (path := _path(data, file, creates=True)) is not None:
        user = credentials.make(name, password, roles, secrets.token_bytes)
        _change(path, lambda known: users.add(known, user))
    else:
        body = {"name": name, "password": _text(password), "roles": list(roles)}
        call(url, "POST", USERS, body)
    _tell({"added": name}, f"added {name}", as_json=as_json)


@group.command()
@click.argument("name")
@password_option
@data_option
@file_option
@admin_option
@json_option
def passwd(
    *,
    name: str,
    password_file: Path | None,
    data: Path | None,
    file: Path | None,
    url: str,
    as_json: bool,
) -> None:
    """Set a user's password.

    Connections that are open stay open.
    """
    password = _password(password_file, name)
    if (path := _path(data, file)) is not None:
        user = credentials.make(name, password, (), secrets.token_bytes)
        _change(path, lambda known: users.change(known, user, roles=False, password=True))
    else:
        call(url, "PATCH", named(USERS, name), {"password": _text(password)})
    _tell({"changed": name}, f"changed the password of {name}", as_json=as_json)


@group.command()
@click.argument("name")
@click.option("--role", "roles", multiple=True, help="Role; they replace all. [repeat]")
@data_option
@file_option
@url_option
@json_option
def roles(
    *,
    name: str,
    roles: tuple[str, ...],
    data: Path | None,
    file: Path | None,
    url: str,
    as_json: bool,
) -> None:
    """Set a user's roles; without --role, none.

    Rules that name roles hold for open connections at once.
    """
    if (path := _path(data, file)) is not None:
        user = credentials.make(name, None, roles, secrets.token_bytes)
        _change(path, lambda known: users.change(known, user, roles=True, password=False))
    else:
        call(url, "PATCH", named(USERS, name), {"roles": list(roles)})
    _tell({"changed": name}, f"changed the roles of {name}", as_json=as_json)


@group.command()
@click.argument("name")
@data_option
@file_option
@url_option
@json_option
def remove(*, name: str, data: Path | None, file: Path | None, url: str, as_json: bool) -> None:
    """Remove a user; ends their connections and sessions."""
    if (path := _path(data, file)) is not None:
        _change(path, lambda known: users.remove(known, name))
    else:
        call(url, "DELETE", named(USERS, name))
    _tell({"removed": name}, f"removed {name}", as_json=as_json)


@group.command(name="list")
@data_option
@file_option
@url_option
@json_option
def list_(*, data: Path | None, file: Path | None, url: str, as_json: bool) -> None:
    """List users and their roles."""
    answer: dict[str, Any]
    if (path := _path(data, file)) is not None:
        known = UserFile(path).load()
        told = [
            {"name": name, "roles": list(known[name].roles), "password": bool(known[name].password)}
            for name in sorted(known)
        ]
        answer = {"users": told}
    else:
        answer = call(url, "GET", USERS)
    if as_json:
        click.echo(json.dumps(answer))
        return
    rows = [
        [
            user["name"],
            "password" if user["password"] else "certificate",
            ", ".join(user["roles"]) or "-",
        ]
        for user in answer["users"]
    ]
    table(["user", "proved by", "roles"], rows, right=set())


def _path(data: Path | None, file: Path | None, *, creates: bool = False) -> Path | None:
    """The file to read or change; None for a running node.

    Raises:
        InputError: it is not there, and nothing is to be created.
    """
    if data is not None and file is not None:
        raise click.UsageError("--data and --file contradict each other; give one of them")
    if data is None:
        if file is not None and not creates and not file.exists():
            raise InputError(f"--file {file}: no such file; give the one that access.users names")
        return file
    if creates:
        folder_to_make(data, "--data").mkdir(mode=0o750, parents=True, exist_ok=True)
    else:
        held_folder(data, "--data", "give the one that the node has")
    return data / FILE


def _change(path: Path, edit: Callable[[dict[str, User]], None]) -> None:
    held_folder(path.parent, "--file", "name a file in a folder that is there")
    act_as_owner(path.parent)
    UserFile(path).change(edit)


def _password(file: Path | None, name: str) -> bytes:
    """From a file, a terminal or stdin; a command line would show it to everybody.

    Raises:
        InputError: the file cannot be read.
    """
    if file is not None:
        return first_line(file)
    if sys.stdin.isatty():
        asked: str = click.prompt(
            f"Password of {name}", hide_input=True, confirmation_prompt=True, err=True
        )
        line = asked.encode()
    else:
        line = sys.stdin.buffer.readline(limits.PASSWORD_BYTES_MAX + 2)
    return line.rstrip(b"\r\n")


def _text(password: bytes | None) -> str | None:
    try:
        return None if password is None else password.decode()
    except UnicodeDecodeError:
        raise InputError("the password is no UTF-8; use --data or --file for such a one") from None


def _tell(value: dict[str, str], line: str, *, as_json: bool) -> None:
    click.echo(json.dumps(value) if as_json else line)
