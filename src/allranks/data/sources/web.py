"""Read files at web addresses and on Hugging Face's hub, through fsspec."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from email.utils import parsedate_to_datetime
from typing import Any, TypeVar

import fsspec  # type: ignore[import-untyped]
from fsspec.implementations.http import HTTPFileSystem  # type: ignore[import-untyped]

from allranks.errors import NotThere, StorageError
from allranks.storage.base import BlockSource, Entry
from allranks.storage.os_errors import missing_file_error, truncated_file_error

T = TypeVar("T")
_PAUSES_S = (0.5, 2.0, 8.0)  # before asking again
_PIECE = 1 << 18
_COMMIT = re.compile(r"@[0-9a-f]{40}/")  # in an address of the hub: what is there never changes


class WebFiles:
    """A Storage of the files below a web address. It can neither list nor write.

    The libraries find credentials by themselves: HF_TOKEN, or those of ``hf auth login``. A request that fails is
    repeated three times.
    """

    def __init__(self, root: str) -> None:
        self._root = root.rstrip("/")
        self._files: Any
        self._files, _ = fsspec.core.url_to_fs(self._root)
        # Ranges are asked for as they are needed: a file system that fetches more than that must be told not to.
        self._exactly = {} if self._files.async_impl else {"cache_type": "none"}

    @property
    def url(self) -> str:
        return self._root

    def file_entry(self, path: str) -> Entry:
        """Return a file's size, and the time of its last change if that is known. Raises NotThere."""
        address = self._address(path)
        about = self._retry("look at", path, lambda: self._files.info(address))
        size = about.get("size")
        if not isinstance(size, int) or size < 0:
            raise StorageError(f"{self._root} does not say how many bytes {path!r} has.", path=path)
        changed, modified = about.get("Last-Modified"), None
        with suppress(ValueError, TypeError):  # what is no time
            modified = parsedate_to_datetime(changed).timestamp() if changed else None
        return Entry(path, size, 1.0 if _COMMIT.search(address) else modified)

    def size(self, path: str) -> int | None:
        try:
            return self.file_entry(path).size
        except NotThere:
            return None

    def read(self, path: str, offset: int, into: Sequence[memoryview]) -> None:
        wanted = sum(buffer.nbytes for buffer in into)
        if not wanted:
            return
        address, end = self._address(path), offset + wanted
        data = memoryview(self._retry("read", path, lambda: self._read_range(address, offset, end)))
        if len(data) < wanted:
            raise truncated_file_error(path, self._root, requested_end=end, size=offset + len(data))
        if len(data) > wanted:
            raise StorageError(
                f"{self._root} sends all of {path!r} where a range of it was asked for.",
                path=path,
                remedy="A rank cannot read its part of a file there: fetch the files, and read them from a disk.",
            )
        for buffer in into:
            buffer.cast("B")[:] = data[: buffer.nbytes]
            data = data[buffer.nbytes :]

    def get(self, path: str, *, most: int | None = None) -> bytes:  # noqa: ARG002
        """Raise NotThere. Only files that allranks wrote are read completely, and there are none on the web."""
        raise missing_file_error(path, self._root)

    def list(self, folder: str) -> tuple[Entry, ...]:
        raise self._refused("list", folder)

    def write(self, path: str, source: BlockSource) -> None:  # noqa: ARG002
        raise self._refused("write", path)

    def put(self, path: str, data: bytes, *, replace: bool = False) -> None:  # noqa: ARG002
        raise self._refused("write", path)

    def delete(self, path: str) -> None:
        raise self._refused("delete", path)

    def remove_folder(self, folder: str) -> None:
        raise self._refused("delete", folder)

    def _address(self, path: str) -> str:
        return f"{self._root}/{path}"

    def _refused(self, doing: str, path: str) -> StorageError:
        return StorageError(f"cannot {doing} {path!r} in {self._root}: it can only be read.", path=path)

    def _read_range(self, address: str, begin: int, end: int) -> bytes:
        """Return a range of a file; more bytes, but not many, if the server sends more than the range."""
        if isinstance(self._files, HTTPFileSystem):
            made: bytes = fsspec.asyn.sync(self._files.loop, _http_range, self._files, address, begin, end)
            return made
        found: bytes = self._files.cat_file(address, start=begin, end=end, **self._exactly)
        return found

    def _retry(self, doing: str, path: str, ask: Callable[[], T]) -> T:
        """Return the answer to a request, and repeat the request if the network or the server fails."""
        for pause_s in (*_PAUSES_S, None):
            try:
                return ask()
            except FileNotFoundError as error:
                raise missing_file_error(path, self._root) from error
            except Exception as error:  # whatever the library for this address raises
                if pause_s is None or _is_answer(error):
                    raise StorageError(
                        f"cannot {doing} {path!r} in {self._root}: {type(error).__name__}: {error}.",
                        path=path,
                        remedy="Check the network, and that this user may read it (HF_TOKEN for the hub).",
                    ) from error
            time.sleep(pause_s)
        raise AssertionError("the last attempt returns or raises")


async def _http_range(files: HTTPFileSystem, address: str, begin: int, end: int) -> bytes:
    """Return a range of a file. The body of the answer is left after the range, because it may have no end."""
    session = await files.set_session()
    how = dict(files.kwargs)
    headers = {**how.pop("headers", {}), "Range": f"bytes={begin}-{end - 1}", "Accept-Encoding": "identity"}
    data = bytearray()
    async with session.get(files.encode_url(address), headers=headers, **how) as answer:
        files._raise_not_found_for_status(answer, address)
        async for piece in answer.content.iter_chunked(_PIECE):
            data += piece
            if len(data) > end - begin:
                answer.close()
                break
    return bytes(data)


def _is_answer(error: Exception) -> bool:
    """Return whether the error is a server's final answer: a status of 400 to 499, except 408 and 429 (try again)."""
    status = getattr(error, "status", None) or getattr(getattr(error, "response", None), "status_code", None)
    return isinstance(status, int) and 400 <= status < 500 and status not in (408, 429)
