"""Listening sockets, by themselves."""

import socket

from headrace.adapters.sockets import bind, listen
from headrace.model import Address


def test_the_kernel_looks_after_peers_that_have_vanished():
    with bind(Address("127.0.0.1", 0)) as listening:
        address = listen(listening)
        with socket.create_connection(address), listening.accept()[0] as accepted:
            assert accepted.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
