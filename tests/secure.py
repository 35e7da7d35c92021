"""Listeners with TLS and WebSocket, and how a test reaches them."""

import socket
import ssl

WAIT = 30
CONNECT = b"\x10\x0d\x00\x04MQTT\x04\x02\x00\x00\x00\x01c"
CONNACK = b"\x20\x02\x00\x00"
PINGREQ, PINGRESP = b"\xc0\x00", b"\xd0\x00"


def secure_settings(server, **extra):
    certificate, key = server
    return {
        "HEADRACE_MQTT__TLS_CERTIFICATE": str(certificate),
        "HEADRACE_MQTT__TLS_KEY": str(key),
        "HEADRACE_MQTT__TLS_BIND": "127.0.0.1:0",
        "HEADRACE_MQTT__WSS_BIND": "127.0.0.1:0",
    } | extra


def port(node, listener):
    return int(node.ready[listener].rpartition(":")[2])


def client_context(authority, certificate=None):
    context = ssl.create_default_context(cafile=authority.file)
    if certificate is not None:
        context.load_cert_chain(*certificate)
    return context


def tls_socket(node, context, listener="mqtts"):
    plain = socket.create_connection(("127.0.0.1", port(node, listener)), timeout=WAIT)
    return context.wrap_socket(plain, server_hostname="localhost")


def is_served(node, context):
    """Whether a TLS client gets its CONNACK."""
    try:
        with tls_socket(node, context) as client:
            client.sendall(CONNECT)
            return client.recv(4) == CONNACK
    except (ssl.SSLError, ConnectionError):
        return False


def refused(node, listener, reason):
    name = f'headrace_connections_refused_total{{door="{listener}",reason="{reason}"}}'
    return node.metrics().get(name, 0)
