"""Find out, from the last lines of a rank that a signal ended, why a library aborted and where Python was.

``faulthandler``, which the agent enables, prints the stacks of all threads; C++ and absl print a reason.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

_REASONS = (
    re.compile(r"\s*what\(\): +(.+)"),  # std::terminate, of an exception that nobody caught
    re.compile(r"F\d{4} \d\d:\d\d:\d\d.*?\] ?(.+)"),  # absl and glog: LOG(FATAL), CHECK
    re.compile(r"Fatal Python error: (?!Aborted|Segmentation fault|Bus error|Illegal|Floating)(.+)"),
)
_THREAD = re.compile(r"(Current thread|Thread) 0x[0-9a-f]+ .*\(most recent call first\):")
_FRAME = re.compile(r'  File "(.+)", line (\d+) in ')
_NOT_THE_USERS = re.compile(r"<frozen |.*/(site|dist)-packages/|.*/lib/python3\.\d+/|.*/src/allranks/")


def reason(lines: Sequence[str]) -> str:
    """Return the last reason for an abort that is printed in the lines, or "" if there is none."""
    found = [match[1].strip() for line in lines for pattern in _REASONS if (match := pattern.match(line))]
    return found[-1] if found else ""


def place(lines: Sequence[str], *, cwd: str) -> str:
    """Return the innermost line of the user's code, e.g. "train.py:88", or "" if no stack was printed.

    A thread of a library has no Python stack. In this case return the line of the main thread, which is printed last.
    """
    stacks: list[tuple[bool, list[str]]] = []
    for line in lines:
        if head := _THREAD.fullmatch(line):
            stacks.append((head[1] == "Current thread", []))
        elif stacks and (frame := _FRAME.match(line)) and not _NOT_THE_USERS.match(frame[1]):
            stacks[-1][1].append(f"{frame[1].removeprefix(f'{cwd}/')}:{frame[2]}")
    current = [places[0] for is_current, places in stacks if is_current and places]
    main = [places[0] for _, places in stacks[-1:] if places]
    return (current or main or [""])[-1]
