"""Run as a program: read footers of Parquet files, which may end this process instead of the one that uses them.

pyarrow ends the process for some damaged footers. Each request on the standard input is 8 bytes with a length, and a
footer. The answer on the standard output is 8 bytes with a length, and JSON: the rows of each row group, or a text
that says what is wrong.
"""

from __future__ import annotations

import json
import struct
import sys

import pyarrow  # type: ignore[import-untyped]
import pyarrow.parquet  # type: ignore[import-untyped]

_LENGTH = struct.Struct("<Q")


def read_footer(footer: bytes) -> list[int]:
    """Return the rows of each row group. Looks at everything that a reader of the file looks at in the footer."""
    found = pyarrow.parquet.read_metadata(pyarrow.BufferReader(b"PAR1" + footer))
    found.schema.to_arrow_schema()
    groups = [found.row_group(number) for number in range(found.num_row_groups)]
    for group in groups:
        for number in range(group.num_columns):
            group.column(number)
    return [int(group.num_rows) for group in groups]


def main() -> None:
    """Answer requests until the standard input ends."""
    while len(head := sys.stdin.buffer.read(_LENGTH.size)) == _LENGTH.size:
        footer = sys.stdin.buffer.read(*_LENGTH.unpack(head))
        try:
            answer = json.dumps(read_footer(footer))
        except Exception as error:
            answer = json.dumps(f"{type(error).__name__}: {error}")
        data = answer.encode()
        sys.stdout.buffer.write(_LENGTH.pack(len(data)) + data)
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
