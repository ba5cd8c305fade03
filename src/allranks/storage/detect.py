"""Choose the storage for an address. The library for cloud storage is imported only for an address in a cloud."""

from __future__ import annotations

import os
from urllib.parse import unquote, urlsplit

from allranks.arguments import expect
from allranks.errors import StorageError

from .base import Storage
from .local import LocalStorage

CLOUDS = ("s3", "gs", "az")


def open_storage(where: str | os.PathLike[str] | Storage, *, direct: bool = False) -> Storage:
    """Return the storage for a path, or for a ``file://``, ``s3://``, ``gs://`` or ``az://`` address.

    A Storage is returned unchanged. With ``direct``, a file system is read past the page cache. Raises BadArgument for
    any other type, and StorageError for any other scheme, or for a cloud if obstore is not installed.
    """
    if not isinstance(where, str | os.PathLike):
        expect(callable(getattr(where, "read", None)), "where", where, "a path, an address, or a Storage")
        return where
    address = os.fspath(where)
    scheme, separator, _ = address.partition("://")
    if not separator:
        return LocalStorage(address, direct=direct)
    if scheme == "file":
        return LocalStorage(path_of_file_address(address), direct=direct)
    if scheme not in CLOUDS:
        known = ", ".join(f"{cloud}://" for cloud in ("file", *CLOUDS))
        raise StorageError(f"{address!r} names no storage: expected a path or one of {known}, found {scheme}://.")
    try:
        from .object import ObjectStorage
    except ModuleNotFoundError as error:
        if error.name != "obstore":
            raise
        remedy = 'Install it: pip install "allranks[cloud]"'
        raise StorageError(f"{address} needs obstore, which is not installed.", remedy=remedy) from error
    return ObjectStorage(address)


def canonical_place(storage: Storage) -> str:
    """Return the canonical address of a storage, with symbolic links resolved.

    It is equal for all addresses of one storage.
    """
    return os.path.realpath(storage.url) if isinstance(storage, LocalStorage) else storage.url


def path_of_file_address(address: str) -> str:
    """Return the path of a ``file://`` address. Raises StorageError if the address names another host."""
    parts = urlsplit(address)
    if parts.netloc not in ("", "localhost") or not parts.path:
        raise StorageError(f"{address!r} names no storage: expected file:///path, found the host {parts.netloc!r}.")
    return unquote(parts.path)
