"""docs/errors.md, drawn from the errors that the cases raise: `python tests/errors/page.py --write` draws it again."""

from __future__ import annotations

import re
import socket
import sys
import tempfile
import textwrap
from collections.abc import Mapping, Sequence
from inspect import cleandoc
from pathlib import Path

from error_cases import CASES, Case

from allranks.errors import AllranksError

PAGE = Path(__file__).parents[2] / "docs" / "errors.md"
_HEAD = """\
# Errors

Every error that allranks raises is an `allranks.errors.AllranksError`. One `except AllranksError` catches all of them.
Many are also an error of Python, such as `ValueError` or `TimeoutError`.

A message says which rank speaks, what it was doing, what is wrong, what was expected and what was found. The last
sentence says what to do.

Every error has four attributes:

| attribute | meaning |
|---|---|
| `ranks` | the ranks that the error is about, as a tuple; empty if it is about no particular rank |
| `step` | the training step, or None |
| `leaf` | the path of the array in the state, such as `params/w`, or None |
| `remedy` | what to do, as text: the last sentence of the message; empty if the message lists it |

Below is one real example of every error, with the attributes that it sets. `/scratch` is your folder,
`train.py:12` the line of your program. Long lines are wrapped here.

This page is drawn from the errors themselves (`python tests/errors/page.py --write`). All classes with their signatures
are in the [reference](reference/errors.md).
"""


_WIDTH = 100  # of a line of an example

# What differs from run to run, and what stands for it.
_CHANGING = {
    r"[^\s(]*error_cases\.py:\d+": "train.py:12",
    r"(process) \d+": r"\1 4711",
    r"\d{4}-\d\d-\d\dT[\d:]+\+00:00": "2026-03-01T09:00:00+00:00",
    r"(rank-\d+-of-\d+)\.[0-9a-f]{8}\.": r"\1.5f0c2a17.",
    r"\w+\.<locals>\.": "",
}


def page() -> str:
    """Return the whole page."""
    parts = []
    for title, group in CASES.items():
        parts.append("\n".join([f"## {title}\n", *(_entry(kind, case) for kind, case in group.items())]))
    return "\n".join([_HEAD, *parts])


def raised(case: Case, folder: Path) -> AllranksError:
    """Return what a case raises in an empty folder."""
    try:
        case(folder)
    except AllranksError as error:
        return error
    raise AssertionError(f"{case.__name__} raised nothing")


def normal(text: str, folder: Path) -> str:
    """Return a text without what differs from run to run: the folder, the host, the process, the time, line numbers."""
    text = text.replace(str(folder), "/scratch").replace(f"host {socket.gethostname()}", "host node-1")
    for pattern, instead in _CHANGING.items():
        text = re.sub(pattern, instead, text)
    return text


def attributes(error: AllranksError) -> Mapping[str, object]:
    """Return the attributes that an error sets, without the remedy, which its message has."""
    found = {name: value for name, value in vars(error).items() if not name.startswith("_") and name != "remedy"}
    return {name: value for name, value in found.items() if value not in ((), None, "")}


def _entry(kind: type[AllranksError], case: Case) -> str:
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        error = raised(case, folder)
        message = "\n".join(map(_wrapped, normal(str(error), folder).splitlines()))
        values = [f"`{name}` is `{_value(value, folder)}`" for name, value in attributes(error).items()]
    also = [base.__name__ for base in kind.__bases__]
    meaning = cleandoc(kind.__doc__ or "").replace("``", "`")
    example = f"\nIn this example {_listed(values)}.\n" if values else ""
    return f"### {kind.__name__}\n\n{meaning}\n\nIs also: {', '.join(also)}.\n\n```text\n{message}\n```\n{example}"


def _wrapped(line: str) -> str:
    inner = " " * (len(line) - len(line.lstrip()) + 4)
    return textwrap.fill(line, _WIDTH, subsequent_indent=inner, break_long_words=False, break_on_hyphens=False)


def _value(value: object, folder: Path) -> str:
    if isinstance(value, str):
        value, *more = value.splitlines()
        return normal(repr(value), folder) + (" ..." if more else "")
    return normal(repr(value), folder)


def _listed(items: Sequence[str]) -> str:
    return " and ".join(filter(None, [", ".join(items[:-1]), items[-1]]))


if __name__ == "__main__":
    if sys.argv[1:] == ["--write"]:
        PAGE.write_text(page())
    else:
        print(page(), end="")
