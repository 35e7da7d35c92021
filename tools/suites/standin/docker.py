"""What aiokafka's tests use of Docker's client, with headrace in the place of a container.

The tests start one container: a Kafka with four listeners, whose ports they choose, and a shell in
which they call its tools. Whether users are known is a matter of a whole node, so the listener of
those is a node of its own.
"""

import shlex
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import trustme
from broker import started
from confluent_kafka import KafkaException
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
)

USERS = {"admin": "admin", "test": "test", "test2": "test2"}
"""Those of the image."""

PASSWORD = b"abcdefgh"
"""Of the key that the tests show."""

RESOURCES = {
    "topic": ResourceType.TOPIC,
    "group": ResourceType.GROUP,
    "transactional-id": ResourceType.TRANSACTIONAL_ID,
    "cluster": ResourceType.BROKER,
}

EVERYBODY = """
[access]
no_match = "allow"
"""
"""Kafka's `allow.everyone.if.no.acl.found`."""


class Container:
    """The nodes behind one container of the image."""

    def __init__(self, environment: dict[str, Any], folder: Path) -> None:
        self._stack = ExitStack()
        ports = {name: str(value) for name, value in environment.items() if name.endswith("PORT")}
        common = {"HEADRACE_KAFKA__NUM_PARTITIONS": str(environment["NUM_PARTITIONS"])}
        self._sasl = f"127.0.0.1:{ports['ADVERTISED_SASL_PLAINTEXT_PORT']}"
        tls = {
            "HEADRACE_KAFKA__TLS_BIND": f"127.0.0.1:{ports['ADVERTISED_SSL_PORT']}",
            "HEADRACE_KAFKA__TLS_CERTIFICATE": str(folder / "server.pem"),
            "HEADRACE_KAFKA__TLS_CLIENT_CA": str(folder / "ca.crt"),
        }
        self._start(common | tls, ports["ADVERTISED_PORT"])
        self._start(common, ports["ADVERTISED_SASL_PLAINTEXT_PORT"], EVERYBODY, USERS)

    def _start(
        self,
        settings: dict[str, str],
        port: str,
        tables: str = "",
        users: dict[str, str] | None = None,
    ) -> None:
        bind = {"HEADRACE_KAFKA__BIND": f"127.0.0.1:{port}"}
        self._stack.enter_context(started(settings | bind, tables, users))

    def stop(self) -> None:
        """Ends the nodes."""
        self._stack.close()

    def exec_run(self, command: str, **_: object) -> tuple[int, bytes]:
        """Exit code and output of one of Kafka's tools."""
        program, *arguments = shlex.split(command)
        name = Path(program).name
        if name == "kafka-acls.sh":
            return self._acls(arguments)
        if name == "kafka-configs.sh":  # which adds users of SCRAM, whom the nodes know
            user = arguments[arguments.index("--entity-name") + 1]
            return (0, b"") if user in USERS else (1, b"only users of the image are known")
        return 1, f"there is no {name}".encode()

    def _acls(self, arguments: list[str]) -> tuple[int, bytes]:
        if "--list" in arguments:
            return 0, b""  # the tests only see that the tool is there
        admin = AdminClient(
            {
                "bootstrap.servers": self._sasl,
                "security.protocol": "SASL_PLAINTEXT",
                "sasl.mechanism": "PLAIN",
                "sasl.username": "admin",
                "sasl.password": USERS["admin"],
            }
        )
        binding = _binding(arguments)
        try:
            if "--add" in arguments:
                admin.create_acls([binding])[binding].result(30)
            else:
                (future,) = admin.delete_acls([_filter(binding)]).values()
                future.result(30)
        except KafkaException as error:
            return 1, str(error).encode()
        return 0, b""


def _binding(arguments: list[str]) -> AclBinding:
    """What options of `kafka-acls.sh` say, one resource, one principal and one operation."""
    pairs = zip(arguments, [*arguments[1:], ""], strict=True)
    options = {name[2:]: value for name, value in pairs if name.startswith("--")}
    (resource,) = RESOURCES.keys() & options
    permission = "allow" if "allow-principal" in options else "deny"
    return AclBinding(
        RESOURCES[resource],
        "kafka-cluster" if resource == "cluster" else options[resource],
        ResourcePatternType.LITERAL,
        options[f"{permission}-principal"],
        "*",
        AclOperation[options["operation"].upper()],
        AclPermissionType[permission.upper()],
    )


def _filter(binding: AclBinding) -> AclBindingFilter:
    """For this one alone."""
    return AclBindingFilter(
        binding.restype,
        binding.name,
        binding.resource_pattern_type,
        binding.principal,
        binding.host,
        binding.operation,
        binding.permission_type,
    )


class Shell:
    """A container of the image in which the tests only make their certificates."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def exec_run(self, *_: object, **__: object) -> tuple[int, bytes]:
        """Makes them: of an authority, the broker, and a client whose key has a password."""
        authority = trustme.CA()
        authority.cert_pem.write_to_path(self._folder / "ca.crt")
        server = authority.issue_cert("127.0.0.1", "localhost")
        parts = [server.private_key_pem, *server.cert_chain_pems]
        (self._folder / "server.pem").write_bytes(b"".join(part.bytes() for part in parts))
        client = authority.issue_cert("client@localhost", common_name="client")
        client.cert_chain_pems[0].write_to_path(self._folder / "client.crt")
        key = load_pem_private_key(client.private_key_pem.bytes(), None)
        guarded = key.private_bytes(
            Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(PASSWORD)
        )
        (self._folder / "client.key").write_bytes(guarded)
        return 0, b""

    def stop(self) -> None:
        """Nothing runs."""


def _run(
    *, volumes: dict[Any, dict[str, str]], environment: dict[str, Any] | None = None, **_: object
) -> Container | Shell:
    (folder,) = [Path(path) for path, each in volumes.items() if each["bind"] == "/ssl_cert"]
    return Shell(folder) if environment is None else Container(environment, folder)


def from_env() -> SimpleNamespace:
    """Docker's client."""
    return SimpleNamespace(containers=SimpleNamespace(run=_run), close=lambda: None)


models = SimpleNamespace(containers=SimpleNamespace(Container=Container))
