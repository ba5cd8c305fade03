"""Parts of ``extra`` that all ranks must put together, when a save is really made."""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable


@runtime_checkable
class Gatherable(Protocol):
    """A value of which each rank holds a part."""

    def gathered(self) -> Any:
        """Return the whole as JSON, equal on all ranks. **Every rank must call.**"""


def resolve(extra: Any) -> Any:
    """Return ``extra`` with all that can be gathered gathered. **Every rank must call**, with as many of these."""
    if isinstance(extra, Gatherable):
        return extra.gathered()
    if type(extra) is dict:
        found = {key: resolve(extra[key]) for key in sorted(extra, key=str)}  # the ranks' dicts may be in other orders
        return {key: found[key] for key in extra}
    if type(extra) in (list, tuple):
        return [resolve(value) for value in extra]
    return extra
