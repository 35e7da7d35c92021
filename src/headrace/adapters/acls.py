"""The ACLs of a node as one file, `<data>/acls.json`; replaced whole, as users are."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

from pydantic import BaseModel, ConfigDict, ValidationError

from headrace import limits
from headrace.adapters.users import read_whole, refused, replace_whole
from headrace.errors import InvalidAclError, UnreadableUsersError
from headrace.kernel.acls import Acl, Operation, Pattern, Permission, Resource, checked

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

FILE: Final = "acls.json"
"""In a data folder."""


class _Acl(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, defer_build=True)

    resource: str
    pattern: str
    name: str
    principal: str
    host: str
    operation: str
    permission: str


class _Acls(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, defer_build=True)

    acls: list[_Acl]


class AclFile:
    """`ports.AclStore` in a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def load(self) -> list[Acl]:
        """Every ACL; none where there is no file.

        Raises:
            UnreadableUsersError: it cannot be read, or is damaged.
        """
        text = read_whole(self.path, limits.USERS_BYTES_MAX)
        try:
            return [] if text is None else [_acl(e) for e in _Acls.model_validate_json(text).acls]
        except (ValidationError, KeyError, InvalidAclError) as error:
            why = str(error)
            if isinstance(error, ValidationError):
                first = error.errors(include_input=False)[0]
                why = f"{'.'.join(map(str, first['loc'])) or 'the file'}: {first['msg']}"
            raise UnreadableUsersError(
                f"{self.path} is damaged ({why}); restore it from a copy, or remove it"
            ) from None

    def save(self, acls: Iterable[Acl]) -> None:
        """Replaces them; on return they survive power loss.

        Raises:
            LostWritesError: a sync failed.
            UsersError: it cannot be written; the old ones stand.
        """
        text = json.dumps({"acls": [_as_json(acl) for acl in sorted(acls)]}, indent=1)
        try:
            replace_whole(self.path, text + "\n")
        except OSError as error:
            raise refused(self.path, error) from error


def _acl(value: _Acl) -> Acl:
    return checked(
        Resource[value.resource.upper()],
        Pattern[value.pattern.upper()],
        value.name,
        value.principal,
        value.host,
        Operation[value.operation.upper()],
        Permission[value.permission.upper()],
    )


def _as_json(acl: Acl) -> dict[str, str]:
    return {
        "resource": acl.resource.name.lower(),
        "pattern": acl.pattern.name.lower(),
        "name": acl.name,
        "principal": acl.principal,
        "host": acl.host,
        "operation": acl.operation.name.lower(),
        "permission": acl.permission.name.lower(),
    }
