"""The cache folder: what was judged, and what the local rules find in files. An effect; losing it costs time alone.

Entries are keyed by the digest of what they were made from, and stand in a folder for this version of the check's own
sources, so that nothing has to be invalidated. Files are written whole under another name and renamed. What is damaged
is left out, and `Folder.lost` says why.

Entries are signed with a secret of this user: a cache that came with a stranger's code could hide what is wrong with
it, or break the reader, and is not believed.
"""

from __future__ import annotations

import os
import re
import stat
import sys
from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field
from errno import EEXIST
from hashlib import blake2b
from hmac import compare_digest
from pathlib import Path
from secrets import token_hex

from allranks.errors import StorageError
from allranks.storage.deletion import delete_name, delete_tree, open_folder

TAG = "Signature: 8a477f597d28d172789f06886806bc55\n# This folder is a cache of `allranks check`. It may be deleted.\n"
JUDGED, VERSIONS, LARGEST = 32, 2, 256 << 20
_SIGNATURE, _SECRET = 16, 32
_MOST_READ = 1 << 30
_READING = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_WRITING = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


def version() -> str:
    """Return what changes when the sources of the check, of its words or of Python do. Looks at names, sizes, times."""
    here = Path(__file__).parent
    files = [*here.rglob("*.py"), here.parent / "findings.py"]
    facts = sorted((os.fspath(file), stat.st_size, stat.st_mtime_ns) for file in files for stat in [file.stat()])
    return digest([repr((sys.version_info, facts)).encode()])


def digest(parts: Iterable[bytes]) -> str:
    """Return a digest of parts, each with its length."""
    sum_ = blake2b(digest_size=16)
    for part in parts:
        sum_.update(len(part).to_bytes(8, "little"))
        sum_.update(part)
    return sum_.hexdigest()


def key_of(files: Mapping[str, bytes], *about: object) -> str:
    """Return the key of a run: paths and contents of all files, and whatever else decides what is found."""
    parts = [repr(about).encode(errors="surrogatepass")]
    for path in sorted(files):
        parts += [path.encode(errors="surrogatepass"), files[path]]
    return digest(parts)


def secret() -> bytes:
    """Return this user's secret, made at the first call; another one each time where no home can be written."""
    base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    file = Path(base) / "allranks" / "secret"
    made = os.urandom(_SECRET)
    passing = file.with_name(f"secret.{made[:8].hex()}")
    try:
        if not file.exists():
            file.parent.mkdir(parents=True, exist_ok=True)
            with os.fdopen(os.open(passing, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as out:
                out.write(made)
            with suppress(FileExistsError):  # another run was faster: its secret is everybody's
                os.link(passing, file)
            passing.unlink()
        known = file.read_bytes()
    except OSError:  # nothing will be believed by the next run, which costs time alone
        return made
    return known if len(known) == _SECRET else made


@dataclass(slots=True)
class Folder:
    """A cache folder. Nothing is made before something is put. ``lost``: why entries were left out."""

    path: Path
    version: str
    secret: bytes
    lost: list[str] = field(default_factory=list)
    _files: dict[bytes, bytes] | None = None
    _used: dict[bytes, bytes] = field(default_factory=dict)
    _fresh: bool = False

    def judged(self, key: str) -> bytes | None:
        """Return what was kept for a run."""
        name = f"run-{key}.json"
        raw = self._read(name)
        if raw is None:  # not there: this run is new
            return None
        text = self._believed(raw)
        if text is None:
            self.lost.append(f"{name} is damaged, or not of this user; left out")
        return text

    def keep(self, key: str, text: bytes) -> None:
        """Keep what was judged in a run, and what it knows of files."""
        try:
            self._prepare()
            with self._open(self.version) as home:
                _write(home, f"run-{key}.json", self._signed(text))
                if self._fresh:
                    _write(home, "files", self._signed(_packed(self._all())))
                _remove_old_runs(home)
            self._bound()
        except (OSError, StorageError) as error:
            self.lost.append(f"{self.path} cannot be written: {getattr(error, 'strerror', None) or error}")

    def get(self, key: bytes) -> bytes | None:
        """Return a summary."""
        if self._files is None:
            self._files = self._loaded()
        value = self._used.get(key, self._files.get(key))
        if value is not None:
            self._used[key] = value
        return value

    def put(self, key: bytes, value: bytes) -> None:
        """Take a summary; `keep` writes it."""
        self._used[key] = value
        self._fresh = True

    def _open(self, *names: str) -> AbstractContextManager[int]:
        """Return the cache folder, or a folder in it, open. A link in their place may have come with the code."""
        return open_folder(os.path.realpath(self.path.parent), (self.path.name, *names))

    def _read(self, name: str) -> bytes | None:
        """Return an entry, and mark it as used; None for what is no file, or cannot be read."""
        with (
            suppress(OSError, StorageError),
            self._open(self.version) as home,
            open(os.open(name, _READING, dir_fd=home), "rb") as file,
        ):
            about = os.fstat(file.fileno())
            if stat.S_ISREG(about.st_mode) and about.st_size <= _MOST_READ:
                os.utime(file.fileno())
                return file.read()
        return None

    def _loaded(self) -> dict[bytes, bytes]:
        raw = self._read("files")
        if raw is None:  # not there: all is new
            return {}
        body = self._believed(raw)
        if body is None:
            self.lost.append("files is damaged, or not of this user; left out")
        return _unpacked(body or b"")

    def _all(self) -> dict[bytes, bytes]:
        """Return what is to be kept of files: that of this run, then others as far as they fit."""
        kept, size = dict(self._used), sum(map(len, self._used.values()))
        for key, value in (self._files or {}).items():
            size += len(value) if key not in kept else 0
            if size > LARGEST:
                break
            kept.setdefault(key, value)
        return kept

    def _prepare(self) -> None:
        """Make the folder. Raises FileExistsError for one that holds something else: nothing in it is touched."""
        self.path.mkdir(parents=True, exist_ok=True)
        with self._open() as folder:
            there = os.listdir(folder)
            if "CACHEDIR.TAG" not in there:
                if there:
                    raise FileExistsError(EEXIST, "the folder holds other things")
                _write(folder, "CACHEDIR.TAG", TAG.encode())
                _write(folder, ".gitignore", b"*\n")
            with suppress(FileExistsError):
                os.mkdir(self.version, dir_fd=folder)

    def _signed(self, raw: bytes) -> bytes:
        return self._signature(raw) + raw

    def _signature(self, raw: bytes) -> bytes:
        return blake2b(raw, digest_size=_SIGNATURE, key=self.secret).digest()

    def _believed(self, raw: bytes) -> bytes | None:
        body = raw[_SIGNATURE:]
        return body if compare_digest(raw[:_SIGNATURE], self._signature(body)) else None

    def _bound(self) -> None:
        folders = [
            one
            for one in self.path.iterdir()
            if len(one.name) == len(self.version) and one.is_dir() and not one.is_symlink()
        ]
        versions = sorted(folders, key=_age, reverse=True)
        for old in versions[VERSIONS:]:
            if old.name != self.version:
                with suppress(OSError, StorageError):
                    delete_tree(old, is_ours=_is_entry)


def _write(folder: int, name: str, raw: bytes) -> None:
    """Write a file in an open folder, complete or not at all. Links in the folder are not followed."""
    passing = f"{name}.{token_hex(4)}"
    with open(os.open(passing, _WRITING, 0o666, dir_fd=folder), "wb") as file:
        file.write(raw)
    os.replace(passing, name, src_dir_fd=folder, dst_dir_fd=folder)


def _remove_old_runs(home: int) -> None:
    runs = [name for name in os.listdir(home) if name.startswith("run-") and _is_entry(name)]
    with suppress(FileNotFoundError):  # another run of the check removes them, too
        runs.sort(key=lambda name: os.lstat(name, dir_fd=home).st_mtime, reverse=True)
        for old in runs[JUDGED:]:
            delete_name(home, old)


def _is_entry(name: str) -> bool:
    """Return whether a name in a folder of a version is that of an entry, complete or in passing."""
    return re.fullmatch(r"(run-[0-9a-f-]+\.json|files|summaries)(\.[0-9a-f]+)?", name) is not None


def _age(path: Path) -> float:
    return path.stat().st_mtime if path.exists() else 0.0


def _packed(entries: Mapping[bytes, bytes]) -> bytes:
    parts: list[bytes] = []
    for key, value in entries.items():
        parts += [len(key).to_bytes(2, "little"), len(value).to_bytes(4, "little"), key, value]
    return b"".join(parts)


def _unpacked(raw: bytes) -> dict[bytes, bytes]:
    found: dict[bytes, bytes] = {}
    at = 0
    while at < len(raw):
        key_end = at + 6 + int.from_bytes(raw[at : at + 2], "little")
        end = key_end + int.from_bytes(raw[at + 2 : at + 6], "little")
        found[raw[at + 6 : key_end]] = raw[key_end:end]
        at = end
    return found
