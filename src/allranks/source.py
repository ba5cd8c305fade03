"""Parse the user's source to a syntax tree, safely in a process with several threads."""

from __future__ import annotations

import ast
import threading
from typing import Literal

# Python 3.11 may fail to make trees in two threads at once (SystemError: AST constructor recursion depth mismatch).
_parser = threading.Lock()
_ATTEMPTS = 3


def parse(text: str, mode: Literal["exec", "eval"] = "exec") -> ast.AST | None:
    """Return the syntax tree of a source, or None if the source is not valid.

    Also returns None if other threads, which do not take our lock, parse all the time.
    """
    for _ in range(_ATTEMPTS):
        try:
            with _parser:
                return ast.parse(text, mode=mode)
        except (SyntaxError, ValueError, RecursionError):
            return None
        except SystemError:  # a thread that does not take the lock
            continue
    return None
