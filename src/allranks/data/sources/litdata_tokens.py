"""Find the tokens in chunks that litdata writes with its ``TokensLoader``."""

from __future__ import annotations

import re

from allranks.data.index import DECODE_ERRORS
from allranks.data.sources.file import FileBytes
from allranks.data.sources.folder_index import NamedFile
from allranks.data.sources.litdata import flat_dtype, read_index, read_named_chunks
from allranks.data.sources.records import read_table
from allranks.data.sources.token_file import TokenLayout, token_file_error
from allranks.errors import DataError

_CHUNK = re.compile(r"(^|/)chunk-\d+-\d+(\.[\w:]+)?\.bin$")


def find_litdata_tokens(file: FileBytes) -> TokenLayout | None:
    """Return where the tokens of a chunk of litdata are; None if the file is no chunk.

    A chunk has the name of one, and an index.json in its folder. Raises DataError if only the index is missing, for a
    chunk of other samples, for one that is compressed, and for one that is cut off.
    """
    if not _CHUNK.search(file.name) or (file.beside("index.json") is None and not _begins_with_table(file)):
        return None
    index = read_index(file)
    try:
        found = {name: index.config.get(name) for name in ("item_loader", "compression", "encryption")}
        if found != {"item_loader": "TokensLoader", "compression": None, "encryption": None}:
            remedy = "Read chunks of other samples with Dataset.litdata; write tokens without compression."
            raise token_file_error(
                index.file, 0, f"its chunks have {found}: expected plain ones of TokensLoader", remedy
            )
        dtype = flat_dtype(index.config["data_format"][0]).newbyteorder("<")
    except DECODE_ERRORS as error:
        raise token_file_error(
            index.file, 0, f"it does not describe tokens: {type(error).__name__}: {error}"
        ) from error
    if dtype.kind not in "iu":
        why = f"its tokens are {dtype}: expected integers"
        raise token_file_error(index.file, 0, why, "Write the tokens as integers; or read other data with litdata.")
    table = read_table(file, "chunk of litdata")
    index.check_samples(file, len(table.bounds) - 1)
    begin = int(table.bounds[0])
    if (file.nbytes - begin) % dtype.itemsize:
        raise token_file_error(file, file.nbytes, f"the file ends in the middle of a token of {dtype.itemsize} bytes")
    return TokenLayout(dtype, begin, (file.nbytes - begin) // dtype.itemsize)


def read_named_token_chunks(index: FileBytes) -> list[NamedFile]:
    """Return the chunks that an index names; none for an index that is not of litdata, which other tokens may have.

    A chunk beside a damaged index is refused when it is read.
    """
    try:
        return read_named_chunks(index)
    except DataError:
        return []


def _begins_with_table(file: FileBytes) -> bool:
    """Return whether a file begins with a number of records, and then with the place behind a table of so many."""
    words = file.read(0, 8) if file.nbytes >= 8 else b""
    return bool(words) and int.from_bytes(words[4:], "little") == 4 * (int.from_bytes(words[:4], "little") + 2)
