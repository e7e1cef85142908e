"""Connections of TCP, for tests of what a server does on the wire."""

import socket
from contextlib import suppress

from patience import PATIENCE

LIVE = b"GET /livez HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
HEAD = b"POST /v1/predict HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: 13\r\n\r\n"
ASKED = HEAD + b'{"text": "a"}'


def connect(to, stack, said=b"", source="127.0.0.1"):
    """A connection of its own, which has said so much."""
    line = stack.enter_context(socket.create_connection(to, timeout=PATIENCE, source_address=(source, 0)))
    line.sendall(said)
    return line


def heard(line):
    """All that comes until the server closes the connection; a reset is an end as well."""
    content = b""
    with suppress(ConnectionError):
        while block := line.recv(65536):
            content += block
    return content


def heard_so_far(line):
    """What has come, without waiting for more."""
    line.setblocking(False)
    try:
        return line.recv(65536)
    except BlockingIOError:
        return b""


def is_open(line):
    """Whether the server has not closed the connection, which has nothing to read. Does not wait."""
    line.setblocking(False)
    try:
        return line.recv(1, socket.MSG_PEEK) != b""
    except BlockingIOError:
        return True
    except ConnectionError:
        return False
