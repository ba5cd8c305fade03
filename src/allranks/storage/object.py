"""Store files in S3, Google Cloud Storage and Azure, through obstore (Rust's object_store).

An object exists completely or not at all. obstore repeats a request that fails. Each created object has a random token
in its metadata. If the answer to a create is lost, the token shows whether this writer created the object.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import obstore
from obstore import exceptions as store_errors
from obstore.store import from_url

from allranks.errors import StorageError

from .base import BLOCK, BlockSource, Entry
from .os_errors import existing_file_error, missing_file_error, split_path, too_large_error, truncated_file_error
from .pull import count_blocks

_TOKEN = "allranks"  # noqa: S105  the name of a metadata field
_MOST_PARTS = 10_000  # of one upload, for S3
_ATTEMPTS = 4
_NO_ANSWER = "HTTP error"  # in obstore's words: a connection that failed or was too slow, not a refusal
_CREDENTIALS = "Credentials come from the environment (AWS_*, GOOGLE_*, AZURE_*) or the machine's role: check them."
_ADVICE: dict[type[Exception], tuple[str, str]] = {
    store_errors.PermissionDeniedError: ("permission denied", _CREDENTIALS),
    store_errors.UnauthenticatedError: ("the credentials are not valid", _CREDENTIALS),
    store_errors.NotSupportedError: (
        "the service does not support this request",
        "allranks needs conditional PUT (If-None-Match: *), multipart uploads and range requests.",
    ),
}


class ObjectStorage:
    """A bucket, or a prefix in it. ``options`` are passed to obstore's store (``endpoint=``, ``region=``, ...).

    ``uploads``: how many parts of BLOCK bytes are sent at the same time.
    ``timeout_s``: the longest time of one request, in seconds.
    ``retries``: how often a request is repeated, with growing pauses, for five minutes at most.

    A ``put`` that raises an error other than AlreadyThere may still have succeeded, or may succeed later: the answer of
    the service may have been lost.
    """

    def __init__(
        self, url: str, *, uploads: int = 8, timeout_s: float = 60.0, retries: int = 10, **options: Any
    ) -> None:
        self._url = url.rstrip("/")
        self._uploads = uploads
        try:
            self._store = from_url(
                url,
                # Plain HTTP is used only if the endpoint's address is http://.
                client_options={"timeout": timedelta(seconds=timeout_s), "allow_http": True},
                retry_config={"max_retries": retries, "retry_timeout": timedelta(minutes=5)},
                **options,
            )
        except (store_errors.BaseError, ValueError) as error:
            raise StorageError(f"cannot open {self._url}: {_first_line(error)}.", remedy=_CREDENTIALS) from error

    @property
    def url(self) -> str:
        return self._url

    def write(self, path: str, source: BlockSource) -> None:
        """Write a new object. Raises AlreadyThere if it exists when the write begins.

        A file of at most one BLOCK is checked when the write ends, too. For larger files services accept no condition.
        Names of shard files are therefore made unique by a nonce.
        """
        blocks = _CopiedBlocks(source)
        if source.size <= BLOCK:
            self._create_object(path, b"".join(blocks))
            return
        if self.size(path) is not None:
            raise existing_file_error(path, self._url)
        token = secrets.token_hex(16)
        try:
            with self._translate_errors("write", path, unless=blocks):
                obstore.put(
                    self._store,
                    path,
                    blocks,
                    attributes={_TOKEN: token},
                    use_multipart=True,
                    chunk_size=BLOCK * -(-count_blocks(source.size) // _MOST_PARTS),
                    max_concurrency=self._uploads,
                )
        except StorageError:
            if blocks.error or not self._has_token(path, token):
                raise

    def put(self, path: str, data: bytes, *, replace: bool = False) -> None:
        if not replace:
            self._create_object(path, data)
            return
        split_path(path)
        with self._translate_errors("write", path):
            obstore.put(self._store, path, data, mode="overwrite", use_multipart=False)

    def get(self, path: str, *, most: int | None = None) -> bytes:
        split_path(path)
        with self._translate_errors("read", path):
            found = obstore.get(self._store, path)
            size = found.meta["size"]
            if most is not None and size > most:
                raise too_large_error(f"{self._url}/{path}", "the object", size, most)
            return bytes(found.bytes())

    def read(self, path: str, offset: int, into: Sequence[memoryview]) -> None:
        split_path(path)
        end = offset + sum(buffer.nbytes for buffer in into)
        if end == offset:
            return
        try:
            with self._translate_errors("read", path):
                data = memoryview(obstore.get_range(self._store, path, start=offset, end=end))
        except StorageError:
            self._check_reach(path, end)  # the service reports a range after the end differently
            raise
        if len(data) < end - offset:
            raise truncated_file_error(path, self._url, requested_end=end, size=offset + len(data))
        for buffer in into:
            buffer.cast("B")[:] = data[: buffer.nbytes]
            data = data[buffer.nbytes :]

    def size(self, path: str) -> int | None:
        split_path(path)
        with self._translate_errors("look at", path):
            try:
                return obstore.head(self._store, path)["size"]
            except FileNotFoundError:
                return None

    def list(self, folder: str) -> tuple[Entry, ...]:
        if folder:
            split_path(folder)
        found = self._list_folder(folder)
        folders = [Entry(_last_component(path), None) for path in found["common_prefixes"]]
        files = [
            Entry(_last_component(each["path"]), each["size"], each["last_modified"].timestamp())
            for each in found["objects"]
        ]
        return tuple(sorted(folders + files, key=lambda entry: entry.name))

    def _list_folder(self, folder: str) -> Any:
        """Return the listing of a folder. Repeats the request if the answer was cut off, because obstore does not."""
        for attempt in range(_ATTEMPTS):
            try:
                with self._translate_errors("list", folder):
                    return obstore.list_with_delimiter(self._store, folder or None)
            except StorageError as error:
                if _NO_ANSWER not in str(error) or attempt == _ATTEMPTS - 1:
                    raise
        raise AssertionError("the last attempt returns or raises")

    def delete(self, path: str) -> None:
        split_path(path)
        with self._translate_errors("delete", path):
            try:
                obstore.delete(self._store, path)
            except FileNotFoundError:
                return  # some services say so

    def remove_folder(self, folder: str) -> None:
        """Do nothing: a folder exists as long as it contains an object."""
        split_path(folder)

    def _create_object(self, path: str, data: bytes) -> None:
        """Create an object. Repeats the request after a lost answer, as obstore does not; the token makes it safe."""
        split_path(path)
        token = secrets.token_hex(16)
        for attempt in range(_ATTEMPTS):
            try:
                with self._translate_errors("write", path):
                    obstore.put(self._store, path, data, attributes={_TOKEN: token}, mode="create", use_multipart=False)
                return
            except StorageError as error:
                if self._has_token(path, token):
                    return
                if _NO_ANSWER not in str(error) or attempt == _ATTEMPTS - 1:
                    raise

    def _has_token(self, path: str, token: str) -> bool:
        """Return whether the object has this token. If so, the request succeeded and only its answer was lost."""
        try:
            return obstore.get(self._store, path, options={"head": True}).attributes.get(_TOKEN) == token
        except (store_errors.BaseError, FileNotFoundError):
            return False

    def _check_reach(self, path: str, end: int) -> None:
        size = self.size(path)
        if size is not None and size < end:
            raise truncated_file_error(path, self._url, requested_end=end, size=size)

    @contextmanager
    def _translate_errors(self, doing: str, path: str, *, unless: _CopiedBlocks | None = None) -> Iterator[None]:
        """Raise StorageError in place of an error of obstore. An error of the source ``unless`` is raised unchanged."""
        try:
            yield
        except (store_errors.BaseError, FileNotFoundError) as error:
            if unless and unless.error:
                raise
            raise self._storage_error(error, doing, path) from error

    def _storage_error(self, error: Exception, doing: str, path: str) -> StorageError:
        if isinstance(error, store_errors.AlreadyExistsError | store_errors.PreconditionError):
            return existing_file_error(path, self._url)
        if isinstance(error, FileNotFoundError) and doing == "read" and "NoSuchBucket" not in str(error):
            return missing_file_error(path, self._url)
        found = _first_line(error)
        meaning, remedy = _ADVICE.get(type(error), ("the service failed", "Check the network and the service."))
        if isinstance(error, FileNotFoundError) or "NoSuchBucket" in str(error):
            meaning, remedy = "there is no such bucket", "Create it, or correct the address."
        return StorageError(f"cannot {doing} {path!r} in {self._url}: {meaning} ({found}).", path=path, remedy=remedy)


class _CopiedBlocks:
    """Iterates over copies of a source's blocks, so that the source's memory can be released at once.

    Keeps the first error.
    """

    def __init__(self, source: BlockSource) -> None:
        self.error: BaseException | None = None
        self._source = source

    def __iter__(self) -> Iterator[bytes]:
        try:
            for number in range(count_blocks(self._source.size)):
                block = self._source.block(number)
                try:
                    copy = bytes(block)
                finally:
                    self._source.done(number)
                yield copy
        except GeneratorExit:
            raise
        except BaseException as error:
            self.error = error
            raise


def _last_component(path: str) -> str:
    return path.rpartition("/")[2]


def _first_line(error: Exception) -> str:
    """Return the first line of obstore's message, without its debugging text and the document that the service sent."""
    line = (str(error).splitlines() or [type(error).__name__])[0]
    return line.partition(": <")[0].removesuffix(": ").strip()
