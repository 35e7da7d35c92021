"""The users of a node as one file: `<data>/users.json`, or what `access.users` names.

Written whole beside the old one, synced, renamed over it, and the folder synced; for the node's
own user alone (0600). A change reads the file, changes it and writes it under a lock, so that a
node and a command that do this at a time lose nothing of each other.
"""

from __future__ import annotations

import base64
import contextlib
import fcntl
import json
import os
from typing import TYPE_CHECKING, Annotated, Any, Final

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from headrace import limits
from headrace.adapters.files import sync, sync_folder
from headrace.errors import UnreadableUsersError, UsersError
from headrace.kernel.credentials import MECHANISMS, ScramKeys, User
from headrace.text import remedy

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

FILE: Final = "users.json"
"""In a data folder."""


def _from_base64(text: str) -> str:
    base64.b64decode(text, validate=True)
    return text


_Base64 = Annotated[str, AfterValidator(_from_base64)]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)  # built now, as in `files`


class _Keys(_Strict):
    salt: _Base64
    iterations: int = Field(ge=1)
    stored_key: _Base64
    server_key: _Base64


class _User(_Strict):
    roles: list[str]
    password: str | None
    scram: dict[str, _Keys]


class _Users(_Strict):
    users: dict[str, _User]


class UserFile:
    """`ports.UserStore` in a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def load(self) -> dict[str, User]:
        """Every user by name; none where there is no file.

        Raises:
            UnreadableUsersError: it cannot be read, or is damaged.
        """
        text = read_whole(self.path, limits.USERS_BYTES_MAX)
        if text is None:
            return {}
        try:
            return {
                name: _user(name, each)
                for name, each in _Users.model_validate_json(text).users.items()
            }
        except ValidationError as error:
            why = error.errors(include_input=False)[0]
            where = ".".join(map(str, why["loc"])) or "the file"
            raise UnreadableUsersError(
                f"{self.path} is damaged ({where}: {why['msg']}); restore it from a copy"
            ) from None

    def change(self, edit: Callable[[dict[str, User]], None]) -> dict[str, User]:
        """Applies `edit` to the users as they are in the file; on return it survives power loss.

        What `edit` raises leaves the file as it was.

        Raises:
            LostWritesError: a sync failed.
            UsersError: it cannot be read or written; the old one stands.
        """
        try:
            with self._locked():
                users = self.load()
                edit(users)
                self._save(users)
        except OSError as error:
            raise refused(self.path, error) from error
        return users

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        lock = self.path.with_name(f"{self.path.name}.lock")
        descriptor = os.open(lock, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)

    def _save(self, users: Mapping[str, User]) -> None:
        text = json.dumps({"users": {name: _as_json(users[name]) for name in sorted(users)}})
        replace_whole(self.path, text + "\n")


def read_whole(path: Path, bytes_max: int) -> bytes | None:
    """What a file holds; None where there is none.

    Raises:
        UnreadableUsersError: it cannot be read, or is larger than `bytes_max`.
    """
    try:
        with path.open("rb") as file:
            text = file.read(bytes_max + 1)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise UnreadableUsersError(f"{path} cannot be read: {error.strerror}; mend that") from None
    if len(text) > bytes_max:
        raise UnreadableUsersError(f"{path} has more than {bytes_max} bytes")
    return text


def replace_whole(path: Path, text: str) -> None:
    """Replaces a file, for the node's own user alone; on return that survives power loss.

    Raises:
        LostWritesError: a sync failed; which of the two stands is seen when it is read again.
        OSError: it cannot be written otherwise; the old one stands.
    """
    temporary = path.with_name(f"{path.name}.tmp")
    temporary.unlink(missing_ok=True)
    descriptor = os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        sync(file.fileno(), temporary)
    temporary.replace(path)
    sync_folder(path.parent)


def refused(path: Path, error: OSError) -> UsersError:
    """What is said where a file cannot be written."""
    what = remedy(error, "check that it exists and may be written")
    return UsersError(f"{path} cannot be written: {error.strerror}; {what}")


def _user(name: str, value: _User) -> User:
    scram = {
        mechanism: ScramKeys(
            base64.b64decode(keys.salt),
            keys.iterations,
            base64.b64decode(keys.stored_key),
            base64.b64decode(keys.server_key),
        )
        for mechanism, keys in value.scram.items()
        if mechanism in MECHANISMS
    }
    return User(name, tuple(value.roles), value.password, scram)


def _as_json(user: User) -> dict[str, Any]:
    def text(value: bytes) -> str:
        return base64.b64encode(value).decode()

    scram = {
        mechanism: {
            "salt": text(keys.salt),
            "iterations": keys.iterations,
            "stored_key": text(keys.stored_key),
            "server_key": text(keys.server_key),
        }
        for mechanism, keys in user.scram.items()
    }
    return {"roles": list(user.roles), "password": user.password, "scram": scram}
