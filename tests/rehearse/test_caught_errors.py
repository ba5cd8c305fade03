"""Which lines of a program go on without a file."""

from __future__ import annotations

import linecache
from pathlib import Path

import pytest

from allranks.rehearse.run import may_be_missing
from allranks.rehearse.trace import Frame


@pytest.mark.parametrize(
    ("handler", "expected"),
    [
        ("except OSError:\n    build()", True),
        ("except (ValueError, FileNotFoundError):\n    build()", True),
        ("except Exception:\n    build()", True),
        ("except:\n    build()", True),
        ("except Exception as error:\n    print(error)\n    raise", False),
        ("except OSError:\n    sys.exit(1)", False),
        ("except ValueError:\n    build()", False),
        ("finally:\n    build()", False),
    ],
)
def test_a_read_may_fail_where_the_program_goes_on_without_the_file(
    tmp_path: Path, handler: str, expected: bool
) -> None:
    source = tmp_path / "train.py"
    source.write_text(f"def load():\n    return open('v')\ntry:\n    load()\n{handler}\n")
    linecache.checkcache()
    frames = (Frame(str(source), 2, "load"), Frame(str(source), 4, "<module>"))
    assert may_be_missing(frames) == expected
    assert not may_be_missing(frames[:1])
