"""The server process: a socket, uvicorn, and an orderly end."""

import asyncio
import math
import signal
import socket
from collections.abc import Callable
from functools import partial
from ipaddress import ip_address
from typing import cast

import uvicorn
from fastapi import FastAPI

from abalone.serving.connections import Connection, ConnectionLimits
from abalone.serving.logs import write_log

LAST_ANSWERS = 25  # seconds for what is in flight when the server is told to stop; then it is answered with a 503
LAST_WORDS = 1  # seconds for clients to read that
QUEUE = 1024  # connections that the system keeps until they are accepted
ACCEPTED = 64  # of them at a time; a few times as many are files already when the first is counted
LOCAL = ("localhost", "127.0.0.1", "[::1]")


def bind(host: str, port: int) -> socket.socket:
    """A socket at that address; taken before the model is read, so that a port in use is told at once."""
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        bound = socket.create_server((host, port), family=family, backlog=QUEUE)
        # Connections inherit it. Without it the body of an answer waits for the client's word that it has the header,
        # which takes 40 ms; asyncio sets it only on sockets that were made by naming TCP.
        bound.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return bound
    except OSError as error:
        raise OSError(f"cannot serve at {host} port {port}: {error.strerror or error}") from None


def address(bound: socket.socket) -> str:
    """Where a browser finds it."""
    host, port = bound.getsockname()[:2]
    return f"http://{f'[{host}]' if ':' in host else host}:{port}"


def own_hosts(host: str, bound: socket.socket) -> list[str] | None:
    """The names that a server reachable from this machine alone answers to; of others none is known."""
    if not ip_address(bound.getsockname()[0]).is_loopback:
        return None
    return [*LOCAL, host, f"[{host}]", bound.getsockname()[0]]


def serve(app: FastAPI, bound: socket.socket, ready: Callable[[], None] = lambda: None) -> bool:
    """Serve until SIGTERM or Ctrl-C, then answer what is in flight and return. A second Ctrl-C does not wait.

    Args:
        app: what to serve, made by `create_app`.
        bound: the socket to listen on.
        ready: called when requests are answered.

    Returns:
        Whether the model is still at work for nobody, in a thread that nothing can end but the end of the process.
    """
    write_log()
    # uvicorn repeats the signal that stopped it once it is done; being told to stop is no failure.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: None)
    Server(app, ready, ConnectionLimits.affordable()).run([bound])
    return not app.state.batcher.ended


class Server(uvicorn.Server):
    """uvicorn, with connections that keep moving, and an end on time.

    Args:
        app: what to serve, made by `create_app`.
        ready: called when requests are answered.
        limits: of connections.
    """

    def __init__(
        self, app: FastAPI, ready: Callable[[], None] = lambda: None, limits: ConnectionLimits | None = None
    ) -> None:
        limits = limits or ConnectionLimits()
        super().__init__(
            uvicorn.Config(
                app,
                http=cast("type[asyncio.Protocol]", partial(Connection, limits=limits)),
                ws="none",
                backlog=ACCEPTED,
                log_config=None,
                access_log=False,
                server_header=False,
                timeout_keep_alive=math.ceil(limits.head_seconds),
                timeout_graceful_shutdown=LAST_ANSWERS + 2 * LAST_WORDS,
            )
        )
        self._in_flight, self._ready = app.state.in_flight, ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start, and tell."""
        await super().startup(sockets)
        for bound in sockets or []:
            bound.listen(QUEUE)  # which asyncio has made as short as it accepts at a time
        self._ready()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Answer what is in flight: with what was asked for as long as there is time, then with a 503."""
        loop = asyncio.get_running_loop()
        ends = (
            loop.call_later(LAST_ANSWERS, self._in_flight.end),
            loop.call_later(LAST_ANSWERS + LAST_WORDS, self._hang_up),
        )
        await super().shutdown(sockets)
        for end in ends:
            end.cancel()

    def _hang_up(self) -> None:
        for connection in list(self.server_state.connections):
            connection.transport.abort()
