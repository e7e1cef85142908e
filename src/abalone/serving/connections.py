"""Connections that have to keep moving: none stays as long as its client likes, and none keeps others out."""

import asyncio
import logging
from dataclasses import dataclass, replace
from http import HTTPStatus
from ipaddress import IPv6Address, ip_address
from typing import Any, cast

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from abalone.serving.problems import Refusal

log = logging.getLogger("abalone.serving")


@dataclass(frozen=True)
class ConnectionLimits:
    """How many connections there may be, and how long each may keep the server waiting.

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
        """The usual ones, or fewer connections where this process may not open as many files."""
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
    """Whose connection it is: who has one address of IPv6 usually has all of its network."""
    if not peer:
        return ""
    address = ip_address(peer[0].partition("%")[0])
    if not isinstance(address, IPv6Address) or address.ipv4_mapped:
        return str(address)
    return f"{IPv6Address(int(address) >> 64 << 64)}/64"
