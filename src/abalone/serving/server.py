"""The server process: socket, uvicorn, limits and timeouts of connections, log, shutdown."""

import asyncio
import ctypes
import logging
import math
import signal
import socket
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from http import HTTPStatus
from ipaddress import IPv6Address, ip_address
from reprlib import repr as short
from typing import Any, cast

import h11
import uvicorn
from fastapi import FastAPI
from uvicorn.protocols.http.h11_impl import H11Protocol

from abalone.errors import InputError
from abalone.serving.predictions import Refusal

log = logging.getLogger("abalone.serving")

LAST_ANSWERS = 25  # seconds for what is in flight when the server is told to stop; then it is answered with a 503
LAST_WORDS = 1  # seconds for clients to read that
# glibc keeps what is freed between two blocks that are not: after two minutes of `benchmarks soak` 223 of 653 MiB.
TRIM_SECONDS = 5.0
QUEUE = 1024  # connections that the system keeps until they are accepted
ACCEPTED = 64  # of them at a time; a few times as many are files already when the first is counted
LOCAL = ("localhost", "127.0.0.1", "[::1]")
SAME_LINES = 5  # lines of one kind that are written within the time
SAME_WITHIN = 60.0  # seconds
KINDS_OF_LINES = 1000  # to remember; some libraries make a new one of every line


@dataclass(frozen=True)
class ConnectionLimits:
    """Limits of connections: their number, and the seconds each may keep the server waiting.

    Args:
        connections: at a time.
        of_one_client: of these from one address, or from one /64 network of IPv6.
        head_seconds: for the headers of a request, since the connection was opened or the last answer was read.
        reading_seconds: in which a client has to read some of its answer.
    """

    connections: int = 1024
    of_one_client: int = 512
    head_seconds: float = 10.0
    reading_seconds: float = 30.0

    @classmethod
    def affordable(cls) -> "ConnectionLimits":
        """Return the default limits, or fewer connections where this process may not open as many files."""
        usual = cls()
        try:
            import resource
        except ModuleNotFoundError:  # on Windows, where sockets are no files
            return usual
        files, most = resource.getrlimit(resource.RLIMIT_NOFILE)
        wanted = 2 * usual.connections  # the model has files too, and connections are accepted before they are counted
        if files < wanted:
            files = wanted if most == resource.RLIM_INFINITY else min(wanted, most)
            resource.setrlimit(resource.RLIMIT_NOFILE, (files, most))
        number = min(usual.connections, files // 2)
        return replace(usual, connections=number, of_one_client=max(number // 2, 1))


class Connection(H11Protocol):
    """One connection of HTTP/1.1, by uvicorn.

    Where there are too many, the one that has kept the server waiting for longest is closed, so that a newcomer is
    answered however many others say nothing.

    Args:
        limits: which apply.
        arguments: of uvicorn.
    """

    def __init__(self, *, limits: ConnectionLimits, **arguments: Any) -> None:
        super().__init__(**arguments)
        self._limits = limits
        self._client = ""
        self._waiting_since = 0.0
        self._sending: asyncio.TimerHandle | None = None  # runs out if the client does not send a request
        self._reading: asyncio.TimerHandle | None = None  # runs out if it does not read its answer

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Wait for a request, if there is room."""
        super().connection_made(transport)
        self._client = _network(transport.get_extra_info("peername"))
        self._wait_for_head()
        self._make_room()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop waiting."""
        super().connection_lost(exc)
        _cancel(self._sending)
        _cancel(self._reading)

    def handle_events(self) -> None:
        """Take in what has arrived."""
        super().handle_events()
        if self._is_asked:
            _cancel(self._sending)

    def on_response_complete(self) -> None:
        """Wait for the next request."""
        self._wait_for_head()
        super().on_response_complete()  # which takes in the next one, if it is here already

    def pause_writing(self) -> None:
        """Wait for the client to read."""
        super().pause_writing()
        self._reading = self.loop.call_later(self._limits.reading_seconds, self.transport.abort)

    def resume_writing(self) -> None:
        """Write on."""
        super().resume_writing()
        _cancel(self._reading)

    @property
    def _is_asked(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    @property
    def _is_kept_waiting(self) -> bool:
        return not self._is_asked or self.cycle.more_body

    def _wait_for_head(self) -> None:
        _cancel(self._sending)
        self._waiting_since = self.loop.time()
        unread = self.transport.get_write_buffer_size() > 0
        seconds = self._limits.reading_seconds if unread else self._limits.head_seconds
        self._sending = self.loop.call_later(seconds, self._give_up)

    def _give_up(self) -> None:
        if self.transport.get_write_buffer_size():  # closing would wait until it is read
            self.transport.abort()
        elif self.conn.their_state is h11.IDLE and self.conn.trailing_data[0]:
            reason = f"the headers did not arrive within {self._limits.head_seconds:g} s"
            self._refuse(Refusal(HTTPStatus.REQUEST_TIMEOUT, reason))
        else:
            self.transport.close()

    def _make_room(self) -> None:
        everyone = cast("set[Connection]", self.connections)
        crowd = {other for other in everyone if other._client == self._client}
        if len(crowd) <= self._limits.of_one_client:
            if len(everyone) <= self._limits.connections:
                return
            crowd = everyone
        log.warning("%d connections are open, %s has %d: one is closed", len(everyone), self._client, len(crowd))
        slowest = min((other for other in crowd if other._is_kept_waiting), key=lambda other: other._waiting_since)
        if slowest is self:  # the others wait for us
            self._refuse(Refusal(HTTPStatus.SERVICE_UNAVAILABLE, "too many connections; try again later", 1))
        else:
            slowest.transport.abort()
        everyone.discard(slowest)  # it is lost a little later, and more may come until then

    def _refuse(self, refusal: Refusal) -> None:
        """Answer before there is a request."""
        answer = refusal.answer()
        headers = [*answer.raw_headers, (b"connection", b"close")]
        lines = [b"HTTP/1.1 %d %s" % (refusal.status, refusal.status.phrase.encode())]
        lines += [name + b": " + value for name, value in headers]
        self.transport.write(b"\r\n".join([*lines, b"", bytes(answer.body)]))
        self.transport.close()


def _cancel(timer: asyncio.TimerHandle | None) -> None:
    if timer is not None:
        timer.cancel()


def _network(peer: tuple[Any, ...] | None) -> str:
    """Return the address of a client; for IPv6 its /64 network, which usually belongs to one client."""
    if not peer:
        return ""
    address = ip_address(peer[0].partition("%")[0])
    if not isinstance(address, IPv6Address) or address.ipv4_mapped:
        return str(address)
    return f"{IPv6Address(int(address) >> 64 << 64)}/64"


def bind(host: str, port: int) -> socket.socket:
    """Bind a socket to the address; before the model is read, so that a port in use is an error at once."""
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        bound = socket.create_server((host, port), family=family, backlog=QUEUE)
        # Connections inherit it. Without it the body of an answer waits for the client's word that it has the header,
        # which takes 40 ms; asyncio sets it only on sockets that were made by naming TCP.
        bound.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return bound
    except OSError as error:
        raise OSError(f"cannot serve at {host} port {port}: {error.strerror or error}") from None
    except UnicodeError as error:  # of a name that IDNA cannot encode
        raise InputError(f"cannot serve at {short(host)}: it is no host name ({error})") from None


def address(bound: socket.socket) -> str:
    """Return the URL of the server."""
    host, port = bound.getsockname()[:2]
    return f"http://{f'[{host}]' if ':' in host else host}:{port}"


def own_hosts(host: str, bound: socket.socket) -> list[str] | None:
    """Return the host names of a server that is reachable from this machine alone; `None` for others."""
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
    """uvicorn with limits of connections and a bounded shutdown.

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
        """Start to accept connections, then call `ready`."""
        await super().startup(sockets)
        self._returning = asyncio.create_task(self._return_freed_memory())
        for bound in sockets or []:
            bound.listen(QUEUE)  # which asyncio has made as short as it accepts at a time
        self._ready()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Answer the requests in flight: with predictions as long as there is time, then with a 503."""
        self._returning.cancel()
        loop = asyncio.get_running_loop()
        ends = (
            loop.call_later(LAST_ANSWERS, self._in_flight.end),
            loop.call_later(LAST_ANSWERS + LAST_WORDS, self._hang_up),
        )
        await super().shutdown(sockets)
        for end in ends:
            end.cancel()

    async def _return_freed_memory(self) -> None:
        """Return to the system what requests have freed, while there are requests."""
        answered = 0
        while True:
            await asyncio.sleep(TRIM_SECONDS)
            if self.server_state.total_requests > answered:
                answered = self.server_state.total_requests
                await asyncio.to_thread(trim_heap)  # it takes milliseconds for each 100 MB

    def _hang_up(self) -> None:
        for connection in list(self.server_state.connections):
            connection.transport.abort()


def trim_heap() -> None:
    """Make glibc return free pages to the system; other C libraries have no such call."""
    if sys.platform == "linux" and (trim := getattr(ctypes.CDLL(None), "malloc_trim", None)):
        trim(0)


class Sparing(logging.Filter):
    """Log filter that leaves out lines of a kind that has just been written often, and says later how many.

    Errors of the server keep their line, which has the id that the client was given; only their tracebacks go.
    """

    def __init__(self) -> None:
        super().__init__()
        self._seen: dict[tuple[str, str], tuple[float, int]] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Tell whether to write the line."""
        kind = (record.name, str(record.msg).partition("\n")[0])
        since, lines = self._seen.get(kind, (record.created, 0))
        if record.created - since >= SAME_WITHIN:
            if lines > SAME_LINES:
                record.msg = f"{record.getMessage()} (and {lines - SAME_LINES:,} lines like this one, left out before)"
                record.args = ()
            since, lines = record.created, 0
        if len(self._seen) >= KINDS_OF_LINES:
            self._seen.clear()
        self._seen[kind] = (since, lines + 1)
        if lines < SAME_LINES:
            return True
        record.exc_info = record.exc_text = None
        return record.levelno >= logging.ERROR and record.name.startswith("abalone")


def write_log() -> None:
    """Write warnings and errors to standard error."""
    handler = logging.StreamHandler()
    handler.addFilter(Sparing())
    logging.basicConfig(format="%(asctime)s %(levelname)s %(message)s", level=logging.WARNING, handlers=[handler])
