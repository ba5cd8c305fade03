"""Serve a host's checkpoint memory over TCP to the other ranks of the job, and read another host's.

Before any other message, client and server prove to each other that they know the job's secret, by an HMAC over random
numbers of both. Data is not encrypted. It is verified by its reader.

    Request     length (4 bytes), JSON: {"do": ..., "path": ...}.
    Answer      length, JSON: {"ok": ...} or {"error": kind, "message": ...}. "read": the bytes follow.
    "write"     The client waits for {"ok": "go"}, sends the bytes, and waits for the last answer.
"""

from __future__ import annotations

import hmac
import json
import os
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Any, Protocol

import numpy as np

from allranks.checkpoint.stage import BlockPool, Bytes
from allranks.errors import AlreadyThere, NotThere, StorageError, Truncated
from allranks.storage.base import BLOCK, BlockSource, Storage
from allranks.storage.pull import pull_blocks

# Seconds without a byte, or until a connection is established.
PATIENCE = 60.0
# Seconds for a connection and its proofs; seconds until a failed one is tried again.
_GREETING, _BACK_OFF = 5.0, 60.0
_MOST_STRANGERS = 32  # connections without a proof
_NONCE, _DIGEST, _LONGEST = 16, 32, 1 << 20
_LENGTH = struct.Struct(">I")
_KINDS = {kind.__name__: kind for kind in (AlreadyThere, NotThere, Truncated, StorageError)}


class MemoryServer:
    """Serves ``storage`` to clients that know the ``secret``, in threads of its own, on any free ``port``.

    A client must prove within ``greeting`` seconds that it knows the secret.
    """

    def __init__(self, storage: Storage, *, secret: bytes, greeting: float = _GREETING) -> None:
        self._storage, self._secret, self._blocks = storage, secret, BlockPool()
        both = socket.has_dualstack_ipv6()
        family = socket.AF_INET6 if both else socket.AF_INET
        self._listener = socket.create_server(("", 0), family=family, backlog=64, dualstack_ipv6=both)
        self.port: int = self._listener.getsockname()[1]
        self._greeting, self._closed = greeting, False
        self._unproven = threading.Semaphore(_MOST_STRANGERS)
        threading.Thread(target=self._accept_clients, name="allranks-memory", daemon=True).start()

    def close(self) -> None:
        """Stop accepting clients. Open connections stay open until their clients close them."""
        self._closed = True
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)  # wakes the thread that accepts
        self._listener.close()

    def _accept_clients(self) -> None:
        while True:
            self._unproven.acquire()
            try:
                channel, _ = self._listener.accept()
            except OSError:
                self._unproven.release()
                if self._closed:
                    return
                time.sleep(0.1)  # no file descriptor is free: poll, since nothing reports when one is
                continue
            threading.Thread(target=self._serve_client, args=(channel,), name="allranks-memory", daemon=True).start()

    def _serve_client(self, channel: socket.socket) -> None:
        with channel, suppress(OSError, EOFError, ValueError):  # a client that has left, or is not of this job
            try:
                channel.settimeout(self._greeting)
                theirs, mine = _receive_bytes(channel, _NONCE), os.urandom(_NONCE)
                channel.sendall(mine + _proof_of_secret(self._secret, b"server", theirs + mine))
                if not hmac.compare_digest(
                    _receive_bytes(channel, _DIGEST), _proof_of_secret(self._secret, b"client", theirs + mine)
                ):
                    return
            finally:
                self._unproven.release()
            channel.settimeout(None)
            while self._answer_request(channel, _receive_document(channel)):
                pass

    def _answer_request(self, channel: socket.socket, request: dict[str, Any]) -> bool:
        """Answer one request of a client; return whether the connection can be used again."""
        try:
            path, do, result = request["path"], request["do"], None
            if do == "write":
                self._storage.write(path, _IncomingFile(channel, request["bytes"], self._blocks))
            elif do == "read":
                return self._send_bytes(channel, path, request["offset"], request["bytes"])
            elif do == "size":
                result = self._storage.size(path)
            elif do == "delete":
                self._storage.delete(path)
            else:
                self._storage.remove_folder(path)
        except StorageError as error:
            _send_document(channel, {"error": type(error).__name__, "message": str(error)})
            return bool(request["do"] != "write")  # bytes may be on their way
        _send_document(channel, {"ok": result})
        return True

    def _send_bytes(self, channel: socket.socket, path: str, offset: int, count: int) -> bool:
        block = self._blocks.take_block() if count <= BLOCK else None
        try:
            data = (np.empty(count, np.uint8) if block is None else block[:count]).data
            self._storage.read(path, offset, [data])
            _send_document(channel, {"ok": None})
            channel.sendall(data)
        finally:
            if block is not None:
                self._blocks.return_block(block)
        return True


class _IncomingFile:
    """The content of a file (a BlockSource) whose bytes arrive over a connection."""

    def __init__(self, channel: socket.socket, size: int, blocks: BlockPool) -> None:
        self.size = size
        self._channel, self._pool = channel, blocks
        self._in_use: dict[int, Bytes] = {}
        self._next = 0
        self._turn = threading.Condition()

    def block(self, number: int) -> memoryview:
        with self._turn:
            self._turn.wait_for(lambda: self._next in (number, -1))
            try:
                if self._next == -1:
                    raise StorageError("the copy is incomplete: the connection failed.")
                if number == 0:
                    _send_document(self._channel, {"ok": "go"})
                block = self._pool.take_block()
                assert block is not None
                self._in_use[number] = block
                view = block.data[: min(BLOCK, self.size - number * BLOCK)]
                self._channel.settimeout(PATIENCE)
                _receive_into(self._channel, view)
                self._channel.settimeout(None)
                self._next = number + 1
            except BaseException:
                self._next = -1
                raise
            finally:
                self._turn.notify_all()
        return view

    def done(self, number: int) -> None:
        self._pool.return_block(self._in_use.pop(number))


class HostMemory(Protocol):
    """The memory of one host, this or another one: the methods of a Storage that shard files need."""

    @property
    def url(self) -> str: ...

    def write(self, path: str, source: BlockSource) -> None: ...

    def read(self, path: str, offset: int, into: Sequence[memoryview]) -> None: ...

    def size(self, path: str) -> int | None: ...

    def delete(self, path: str) -> None: ...

    def remove_folder(self, folder: str) -> None: ...


class RemoteMemory:
    """The memory of another host, which its ``rank`` serves at one of ``addresses``. Thread-safe.

    It connects at the first use. Raises StorageError if the server does not answer.
    """

    def __init__(self, rank: int, host: str, addresses: Iterable[tuple[str, int]], *, secret: bytes) -> None:
        self._who = f"rank {rank} (host {host})"
        self._addresses, self._secret = tuple(addresses), secret
        self._channel: socket.socket | None = None
        self._lock = threading.Lock()
        self._failed, self._again = "", 0.0

    @property
    def url(self) -> str:
        return f"the memory of {self._who}"

    def write(self, path: str, source: BlockSource) -> None:
        def send(channel: socket.socket) -> None:
            def sink(offset: int, data: memoryview) -> None:
                if offset == 0:
                    _answer_in(channel)
                channel.sendall(data)

            pull_blocks(source, sink, thread_count=1)

        self._send_request({"do": "write", "path": path, "bytes": source.size}, between=send)

    def read(self, path: str, offset: int, into: Sequence[memoryview]) -> None:
        views = [one.cast("B") for one in into if one.nbytes]
        request = {"do": "read", "path": path, "offset": offset, "bytes": sum(map(len, views))}

        def take(channel: socket.socket) -> None:
            for view in views:
                _receive_into(channel, view)

        self._send_request(request, after=take)

    def size(self, path: str) -> int | None:
        found: int | None = self._send_request({"do": "size", "path": path})
        return found

    def delete(self, path: str) -> None:
        self._send_request({"do": "delete", "path": path})

    def remove_folder(self, folder: str) -> None:
        self._send_request({"do": "remove_folder", "path": folder})

    def _send_request(
        self,
        request: dict[str, Any],
        *,
        between: Callable[[socket.socket], object] = lambda _: None,
        after: Callable[[socket.socket], object] = lambda _: None,
    ) -> Any:
        """Send a request, and return the answer.

        ``between``: sends data after the request. ``after``: reads data after the answer.
        """
        with self._lock:
            try:
                channel = self._channel = self._channel or self._connect_to_server()
                _send_document(channel, request)
                between(channel)
                found = _answer_in(channel)
                after(channel)
                return found
            except (NotThere, Truncated):  # the connection is still usable
                raise
            except (OSError, EOFError, ValueError) as error:
                self.close()
                words = f"{self.url}: {request['do']} {request['path']!r}: the connection failed: {error}."
                raise StorageError(words, path=request["path"]) from error
            except BaseException:
                self.close()
                raise

    def close(self) -> None:
        """Close the connection, if there is one. The next call opens a new one."""
        channel, self._channel = self._channel, None
        if channel is not None:
            channel.close()

    def _connect_to_server(self) -> socket.socket:
        if time.monotonic() < self._again:
            raise OSError(f"{self._failed} (the next attempt is later)")
        failed: list[str] = []
        for address in self._addresses:
            channel = None
            try:
                channel = socket.create_connection(address, timeout=_GREETING)
                channel.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                mine = os.urandom(_NONCE)
                channel.sendall(mine)
                both = mine + _receive_bytes(channel, _NONCE)
                if not hmac.compare_digest(
                    _receive_bytes(channel, _DIGEST), _proof_of_secret(self._secret, b"server", both)
                ):
                    raise ValueError("another program answers at this address")
                channel.sendall(_proof_of_secret(self._secret, b"client", both))
                channel.settimeout(PATIENCE)
                return channel
            except (OSError, EOFError, ValueError) as error:
                failed.append(f"{address[0]} port {address[1]}: {error}")
                if channel is not None:
                    channel.close()
        self._failed, self._again = (
            "; ".join(failed) or "the rank has reported no address",
            time.monotonic() + _BACK_OFF,
        )
        raise OSError(self._failed)


def _proof_of_secret(secret: bytes, who: bytes, numbers: bytes) -> bytes:
    return hmac.digest(secret, who + numbers, "sha256")


def _receive_bytes(channel: socket.socket, count: int) -> bytes:
    data = bytearray(count)
    _receive_into(channel, memoryview(data))
    return bytes(data)


def _receive_into(channel: socket.socket, view: memoryview) -> None:
    while view:
        count = channel.recv_into(view)
        if not count:
            raise EOFError("the other side closed the connection")
        view = view[count:]


def _send_document(channel: socket.socket, document: dict[str, Any]) -> None:
    data = json.dumps(document).encode()
    channel.sendall(_LENGTH.pack(len(data)) + data)


def _receive_document(channel: socket.socket) -> dict[str, Any]:
    (length,) = _LENGTH.unpack(_receive_bytes(channel, _LENGTH.size))
    if length > _LONGEST:
        raise ValueError(f"a message of {length} bytes")
    found: dict[str, Any] = json.loads(_receive_bytes(channel, length))
    return found


def _answer_in(channel: socket.socket) -> Any:
    answer = _receive_document(channel)
    if "error" in answer:
        raise _KINDS.get(answer["error"], StorageError)(answer["message"])
    return answer["ok"]
