"""Carry messages between the launchers of a job's hosts, over TCP, without ever waiting for a slow one."""

from __future__ import annotations

import errno
import select
import socket
from collections import deque
from contextlib import suppress
from dataclasses import dataclass, field

from allranks.launch.hosts.messages import LONGEST, Message, decode, encode

CHUNK = 1 << 18


@dataclass(frozen=True, slots=True)
class LinkEnd:
    """The connection has ended; ``why`` is a text."""

    why: str


@dataclass(slots=True)
class _Link:
    sock: socket.socket
    incoming: bytearray = field(default_factory=bytearray)
    outgoing: bytearray = field(default_factory=bytearray)


class Links:
    """The connections of one launcher. Each has a number, its *link*, which is never used again.

    On host 0, ``listener`` accepts connections. ``fileno`` is for a selector: it is readable when ``read`` has
    something to do. A link that ends by itself is in the result of ``read`` once, and then gone.
    """

    def __init__(self, listener: socket.socket | None = None) -> None:
        self._poll = select.epoll()
        self._listener = listener
        self._is_full = False  # no more connections can be open
        self._links: dict[int, _Link] = {}
        self._numbers: dict[int, int] = {}  # file descriptor -> link
        self._next = 1
        self._unread: deque[tuple[int, Message | LinkEnd | None]] = deque()
        if listener is not None:
            listener.setblocking(False)
            self._poll.register(listener.fileno(), select.EPOLLIN)

    def fileno(self) -> int:
        return self._poll.fileno()

    def add(self, sock: socket.socket) -> int:
        """Add a connected socket; return its link."""
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        link, self._next = self._next, self._next + 1
        self._links[link] = _Link(sock)
        self._numbers[sock.fileno()] = link
        self._poll.register(sock.fileno(), select.EPOLLIN)
        return link

    def address(self, link: int) -> str:
        """Return the address of the other end, for people."""
        return str(self._links[link].sock.getpeername()[0]).removeprefix("::ffff:")

    def read(self, timeout: float = 0.0) -> list[tuple[int, Message | LinkEnd | None]]:
        """Return what has arrived, in order for each link; None for a link that is new.

        Waits up to ``timeout`` seconds for the first of it, and sends what had to wait.
        """
        found, self._unread = [*self._unread], deque()
        for fd, happened in self._poll.poll(0.0 if found else timeout):
            if self._listener is not None and fd == self._listener.fileno():
                found += [(link, None) for link in self._accept(self._listener)]
            elif (link := self._numbers.get(fd)) is not None:
                found += [(link, message) for message in self._turn(link, happened)]
        return found

    def next(self) -> tuple[int, Message | LinkEnd | None] | None:
        """Return the first of what ``read`` would return without waiting, and keep the rest; None for nothing."""
        self._unread = deque(self.read())
        return self._unread.popleft() if self._unread else None

    @property
    def has_unread(self) -> bool:
        """Whether ``next`` kept something: ``fileno`` does not say so."""
        return bool(self._unread)

    def send(self, link: int, message: Message) -> None:
        """Send a message; keeps what the network does not take yet. Does nothing for a link that has ended."""
        if (one := self._links.get(link)) is None:
            return
        one.outgoing += encode(message)
        self._push(one)

    def close_link(self, link: int) -> None:
        """Close a connection. What could not be sent yet is dropped."""
        if (one := self._links.pop(link, None)) is not None:
            del self._numbers[one.sock.fileno()]
            self._poll.unregister(one.sock.fileno())
            one.sock.close()
            self._listen(is_full=False)

    def close(self) -> None:
        """Close all connections."""
        for link in [*self._links]:
            self.close_link(link)
        if self._listener is not None:
            self._listener.close()
        self._poll.close()

    @property
    def port(self) -> int:
        """The port of the listener."""
        assert self._listener is not None
        return int(self._listener.getsockname()[1])

    def waits_to_send(self) -> bool:
        """Return whether something could not be sent yet."""
        return any(one.outgoing for one in self._links.values())

    def _listen(self, *, is_full: bool) -> None:
        """Stop to wait for connections when no more can be open, or wait again."""
        if self._listener is not None and is_full is not self._is_full:
            self._is_full = is_full
            self._poll.modify(self._listener.fileno(), 0 if is_full else select.EPOLLIN)

    def _accept(self, listener: socket.socket) -> list[int]:
        found = []
        while True:
            try:
                found.append(self.add(listener.accept()[0]))
            except BlockingIOError:
                return found
            except OSError as error:  # it has ended already, or there are too many
                if error.errno in (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM):
                    self._listen(is_full=True)
                    return found

    def _turn(self, link: int, happened: int) -> list[Message | LinkEnd]:
        one = self._links[link]
        if happened & select.EPOLLOUT:
            self._push(one)
        if not happened & ~select.EPOLLOUT:
            return []
        why, data = "", b""
        try:
            data = one.sock.recv(CHUNK)
        except BlockingIOError:
            return []
        except OSError as error:
            why = error.strerror or str(error)
        one.incoming += data
        *lines, rest = bytes(one.incoming).split(b"\n")
        found: list[Message | LinkEnd] = []
        for line in lines:
            try:
                found.append(decode(line))
            except ValueError as error:
                why = f"it sent what is no message of a launcher: {error}"
                break
        one.incoming = bytearray(rest)
        if len(rest) > LONGEST:
            why = f"it sent a message of more than {LONGEST} bytes"
        if not data and not why:
            why = "its launcher has ended"
        if why:
            self.close_link(link)
            found.append(LinkEnd(why))
        return found

    def _push(self, one: _Link) -> None:
        """Send what the network takes. An error is left to ``read``."""
        with suppress(OSError):
            del one.outgoing[: one.sock.send(one.outgoing)]
        wanted = select.EPOLLIN | (select.EPOLLOUT if one.outgoing else 0)
        self._poll.modify(one.sock.fileno(), wanted)
