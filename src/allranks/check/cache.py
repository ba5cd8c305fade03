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
import sys
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from errno import EEXIST
from hashlib import blake2b
from hmac import compare_digest
from pathlib import Path

from allranks.errors import StorageError
from allranks.storage.deletion import delete_tree

TAG = "Signature: 8a477f597d28d172789f06886806bc55\n# This folder is a cache of `allranks check`. It may be deleted.\n"
JUDGED, VERSIONS, LARGEST = 32, 2, 256 << 20
_SIGNATURE, _SECRET = 16, 32


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
        file = self._home / f"run-{key}.json"
        try:
            raw = file.read_bytes()
            os.utime(file)
        except OSError:  # not there: this run is new
            return None
        text = self._believed(raw)
        if text is None:
            self.lost.append(f"{file.name} is damaged, or not of this user; left out")
        return text

    def keep(self, key: str, text: bytes) -> None:
        """Keep what was judged in a run, and what it knows of files."""
        try:
            self._prepare()
            self._write(f"run-{key}.json", text)
            if self._fresh:
                self._write("files", _packed(self._all()))
            self._bound()
        except OSError as error:
            self.lost.append(f"{self.path} cannot be written: {error.strerror}")

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

    @property
    def _home(self) -> Path:
        return self.path / self.version

    def _loaded(self) -> dict[bytes, bytes]:
        try:
            raw = (self._home / "files").read_bytes()
        except OSError:  # not there: all is new
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
        tag = self.path / "CACHEDIR.TAG"
        self.path.mkdir(parents=True, exist_ok=True)
        if not tag.exists():
            if any(self.path.iterdir()):
                raise FileExistsError(EEXIST, "the folder holds other things")
            tag.write_text(TAG)
            (self.path / ".gitignore").write_text("*\n")
        self._home.mkdir(exist_ok=True)

    def _write(self, name: str, raw: bytes) -> None:
        passing = self._home / f"{name}.{os.getpid()}"
        passing.write_bytes(self._signature(raw) + raw)
        passing.replace(self._home / name)

    def _signature(self, raw: bytes) -> bytes:
        return blake2b(raw, digest_size=_SIGNATURE, key=self.secret).digest()

    def _believed(self, raw: bytes) -> bytes | None:
        body = raw[_SIGNATURE:]
        return body if compare_digest(raw[:_SIGNATURE], self._signature(body)) else None

    def _bound(self) -> None:
        runs = sorted(self._home.glob("run-*"), key=_age, reverse=True)
        for old in runs[JUDGED:]:
            old.unlink(missing_ok=True)
        folders = [one for one in self.path.iterdir() if len(one.name) == len(self.version) and one.is_dir()]
        versions = sorted(folders, key=_age, reverse=True)
        for old in versions[VERSIONS:]:
            if old != self._home:
                with suppress(OSError, StorageError):
                    delete_tree(old, is_ours=_is_entry)


def _is_entry(name: str) -> bool:
    """Return whether a name in a folder of a version is that of an entry, complete or in passing."""
    return re.fullmatch(r"(run-[0-9a-f-]+\.json|files|summaries)(\.[0-9]+)?", name) is not None


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
