"""Keep indexes in a cache, beside the data or in the user's cache folder."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Sequence

from allranks.data.index import DECODE_ERRORS, DatasetIndex
from allranks.data.sources.listing import ListedFile
from allranks.digest import digest, show
from allranks.errors import DataError, NotThere, StorageError, Unsafe
from allranks.gate.log import log
from allranks.storage.base import Storage
from allranks.storage.detect import open_storage

FOLDER = ".allranks-index"
_FORMAT = 1


class IndexCache:
    """The cache of one index; ``words`` describe the index, and give the file its name.

    If ``folder`` is given, the index is stored only there. Otherwise it is stored in ``.allranks-index/`` of the data,
    or in ``$XDG_CACHE_HOME/allranks`` if the data cannot be written. It is stored with the sizes and times of the
    files, and used again for files with the same sizes and times.
    """

    def __init__(self, data: Storage, words: Sequence[str], folder: str | None) -> None:
        beside = show(digest(*words))[:16]
        elsewhere = show(digest(data.url, *words))[:16]
        if folder is not None:
            self._places = [(open_storage(folder), f"{elsewhere}.index")]
        else:
            self._places = [(data, f"{FOLDER}/{beside}.index")]
            if users := _users_folder():
                self._places.append((open_storage(users), f"{elsewhere}.index"))

    def load_index(self, most_bytes: int) -> tuple[DatasetIndex, dict[str, ListedFile]] | None:
        """Return the cached index, and its files with their sizes and times; None if nothing is cached.

        A damaged, unreadable or too large index (above ``most_bytes``) counts as none, and a warning is logged.
        """
        for storage, path in self._places:
            try:
                return _decode_index(storage.get(path, most=most_bytes))
            except NotThere:
                continue
            except (DataError, StorageError, Unsafe) as error:
                log("%s/%s: %s It is built anew.", storage.url, path, error, level=logging.WARNING)
        return None

    def stored_place(self) -> tuple[str, int] | None:
        """Return the address of the cached index, and its size in bytes; None if nothing is cached."""
        for storage, path in self._places:
            nbytes = storage.size(path)
            if nbytes is not None:
                return f"{storage.url.rstrip('/')}/{path}", nbytes
        return None

    def store_index(self, index: DatasetIndex, files: Sequence[ListedFile]) -> None:
        """Store an index of these files. If it cannot be stored, a warning is logged."""
        data = _encode_index(index, files)
        refused: list[StorageError] = []
        for storage, path in self._places:
            try:
                storage.put(path, data, replace=True)
                return
            except StorageError as error:
                refused.append(error)
        log("the index is not kept: %s", " ".join(map(str, refused)), level=logging.WARNING)


def _users_folder() -> str | None:
    """Return the user's folder for caches; None for a user without a home, as in some containers."""
    given = os.environ.get("XDG_CACHE_HOME", "")
    folder = given if os.path.isabs(given) else os.path.expanduser("~/.cache")
    return os.path.join(folder, "allranks", "index") if os.path.isabs(folder) else None


def _encode_index(index: DatasetIndex, listed: Sequence[ListedFile]) -> bytes:
    files = [[one.name, one.nbytes, one.modified] for one in listed]
    head = json.dumps({"cache": _FORMAT, "files": files}, separators=(",", ":")).encode()
    body = head + b"\n" + index.encode()
    return show(digest(body)).encode() + b"\n" + body


def _decode_index(data: bytes) -> tuple[DatasetIndex, dict[str, ListedFile]]:
    seal, _, body = data.partition(b"\n")
    if seal != show(digest(body)).encode():
        raise DataError("the index is damaged: its digest differs from the digest of its content.")
    line, _, rest = body.partition(b"\n")
    try:
        head = json.loads(line)
        if head["cache"] != _FORMAT:
            raise ValueError(f"its format is {head['cache']!r:.40}: expected {_FORMAT}")
        listed = {str(name): ListedFile(str(name), nbytes, modified) for name, nbytes, modified in head["files"]}
    except DECODE_ERRORS as error:
        raise DataError(f"the index is damaged: {error}.") from error
    return DatasetIndex.decode(rest), listed
