"""Read the directory of a zip archive that ``torch.save`` wrote: names and positions of records. Unpacks nothing."""

from __future__ import annotations

import io
import struct
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

from allranks.errors import Unsafe
from allranks.loading.formats.base import FileBlob
from allranks.storage import limits
from allranks.storage.seekable_file import SeekableFile

_LOCAL = struct.Struct("<4s5H3L2H")
# One record for so many of the metadata limit's bytes: 2 million.
_BYTES_PER_RECORD = 128


@dataclass(frozen=True, slots=True)
class ArchiveRecord:
    """A file in a zip archive: its ``size`` bytes begin at byte ``begin`` of the blob; ``crc`` is their CRC-32."""

    begin: int
    size: int
    crc: int


def read_records(blob: FileBlob) -> Mapping[str, ArchiveRecord]:
    """Return an archive's records by name, without the one folder that contains all of them.

    Raises Damaged if it is no zip archive. Raises Unsafe if records are compressed or encrypted (torch writes none),
    overlap, or are outside of the archive or its folder.
    """
    try:
        with zipfile.ZipFile(io.BufferedReader(_file(blob))) as archive:
            entries = archive.infolist()
    except (zipfile.BadZipFile, NotImplementedError, EOFError, ValueError, OverflowError, struct.error) as error:
        raise blob.damaged_error(f"it is no zip archive ({error})") from error
    if len(entries) > (most := limits.metadata_limit() // _BYTES_PER_RECORD):
        raise Unsafe(
            f"{blob.url} has {len(entries):,} records: expected at most {most:,}.",
            path=blob.name,
            remedy=limits.advice_on_limit(),
        )
    found = {}
    for entry in entries:
        name = entry.filename
        folder, _, inner = name.partition("/")
        if not inner or name.startswith("/") or ".." in name.split("/") or "\\" in name or "\0" in name:
            raise _unsafe_error(blob, f"has a record named {name!r:.200}")
        if entry.compress_type != zipfile.ZIP_STORED or entry.file_size != entry.compress_size:
            raise _unsafe_error(
                blob, f"has a compressed record, {name!r:.200}: {entry.compress_size} bytes for {entry.file_size}"
            )
        if entry.flag_bits & 1:
            raise _unsafe_error(blob, f"has an encrypted record, {name!r:.200}")
        if inner in found or folder != entries[0].filename.partition("/")[0]:
            raise _unsafe_error(blob, f"has two records {inner!r:.200}, or several folders")
        found[inner] = ArchiveRecord(_begin_of_data(blob, entry), entry.file_size, entry.CRC)
    _refuse_overlaps(blob, found)
    return found


def _file(blob: FileBlob) -> SeekableFile:
    return SeekableFile(blob.size, partial(blob.read, content="its directory"))


def _begin_of_data(blob: FileBlob, entry: zipfile.ZipInfo) -> int:
    """Return the position of an entry's bytes, from its local header. Raises Unsafe if the directory disagrees."""
    expected = entry.orig_filename.encode()
    header = blob.read(
        entry.header_offset, _LOCAL.size + len(expected), content=f"the header of {entry.filename!r:.200}"
    )
    signature, *_, name_size, extra_size = _LOCAL.unpack_from(header)
    name = header[_LOCAL.size :]
    if signature != b"PK\3\4" or (name_size, name) != (len(expected), expected):
        raise _unsafe_error(blob, f"names {entry.filename!r:.200}, but the header there names {name!r:.80}")
    begin = entry.header_offset + _LOCAL.size + int(name_size) + int(extra_size)
    blob.sub_blob(begin, entry.file_size, content=f"the record {entry.filename!r:.200}")
    return begin


def _refuse_overlaps(blob: FileBlob, found: Mapping[str, ArchiveRecord]) -> None:
    end, before = 0, ""
    for name, record in sorted(found.items(), key=lambda one: (one[1].begin, one[1].size)):
        if record.begin < end:
            raise _unsafe_error(blob, f"has the record {name!r:.200} over the record {before!r:.200}")
        end, before = record.begin + record.size, name


def _unsafe_error(blob: FileBlob, what: str) -> Unsafe:
    return Unsafe(f"{blob.url} {what}: torch.save does not write such an archive.", path=blob.name)
