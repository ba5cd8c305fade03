"""Log and print on the main rank only, and log errors on every rank.

Nothing here is collective: each rank decides by its rank number. Before ``allranks.init()`` every process logs and
prints.
"""

from __future__ import annotations

import builtins
import logging
import sys
from typing import Any

from allranks.errors import AllranksError
from allranks.world.detect import current
from allranks.world.guards.detect import one_rank

FORMAT = "%(asctime)s rank %(rank)s %(levelname)s %(name)s: %(message)s"
_LOGGER = logging.getLogger("allranks")


def log(message: object, *args: object, level: int = logging.INFO) -> None:
    """Log ``message % args`` to the logger ``allranks`` on the main rank; from level ERROR on, on every rank.

    The arguments are evaluated on every rank, as the reduction of a sharded metric must be. If ``logging`` is not
    configured, the text goes to stderr.
    """
    rank = _current_rank()
    configured = _LOGGER.hasHandlers()
    if not _may_log(rank, level) or (configured and not _LOGGER.isEnabledFor(level)):
        return
    with one_rank(rank or 0):
        text = str(message) % args if args else str(message)
    if configured:
        # Not as a format: the text is complete.
        _LOGGER.log(level, "%s", text, stacklevel=2)
    else:
        builtins.print(text, file=sys.stderr)


def print(*values: object, **options: Any) -> None:  # noqa: A001
    """Print like the builtin, but only on the main rank. The arguments are evaluated on every rank."""
    rank = _current_rank()
    if rank in (0, None):
        with one_rank(0):
            builtins.print(*values, **options)


class RankFilter(logging.Filter):
    """Set ``rank`` on every log record; pass the records of the main rank, and errors of every rank.

    Add it to handlers: a filter of a logger does not see the records of the logger's children.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        rank = _current_rank()
        record.rank = "?" if rank is None else rank
        return super().filter(record) and _may_log(rank, record.levelno)


def configure_logging(level: int = logging.INFO) -> None:
    """Add a RankFilter to the handlers of the root logger, and set its ``level``.

    If the root logger has no handler, add one on stderr, with the rank in each line. Any rank may call this, any number
    of times.
    """
    root = logging.getLogger()
    root.setLevel(level)
    if not root.handlers:
        to_stderr = logging.StreamHandler()
        to_stderr.setFormatter(logging.Formatter(FORMAT))
        root.addHandler(to_stderr)
    for handler in root.handlers:
        if not any(isinstance(known, RankFilter) for known in handler.filters):
            handler.addFilter(RankFilter())


def _current_rank() -> int | None:
    try:
        return current().rank
    except AllranksError:
        return None


def _may_log(rank: int | None, level: int) -> bool:
    return rank in (0, None) or level >= logging.ERROR
