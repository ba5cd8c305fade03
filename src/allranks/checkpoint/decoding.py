"""Objects of registered types are made before anything else is filled: where one cannot be, nothing has changed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from allranks.arrays.base import OpenTree
from allranks.checkpoint.ties import Read
from allranks.errors import DoesNotFit

_REMEDY = "Restore it by the code that saved it, or by a decode that takes what was saved."


class Decoded:
    """The objects of registered types in a tree, made of a checkpoint; ``filled`` are the arrays read for them.

    ``names`` are those of arrays in the checkpoint, ``twins`` says which array is one memory with which other one, that
    is filled; ``read`` fills targets, ``who`` restores. Raises DoesNotFit, and what ``read`` raises: the template's
    arrays are as they were.
    """

    def __init__(
        self,
        tree: OpenTree,
        names: Mapping[int, str],
        *,
        twins: Mapping[int, int],
        read: Read,
        values: Mapping[str, Any],
        who: str,
    ) -> None:
        twin = {number: twins.get(number, number) for number in tree.encoded}
        filled = frozenset(twin.values()) & names.keys()
        for number in (number for number, other in twin.items() if other in filled):
            tree.targets(number)  # what has no memory yet gets that of its twin
        self.filled = frozenset(names[number] for number in filled)
        targets = [(names[number], target) for number in filled for target in tree.targets(number)]
        self._before = [(target.buffer, target.buffer.copy()) for _, target in targets if target.live]
        try:
            read(targets)
            tree.decode(values)
        except BaseException as error:
            self.undo()
            if isinstance(error, DoesNotFit):
                raise DoesNotFit(f"{who}: {error}. Nothing is changed.", differences=(), remedy=_REMEDY) from error
            raise

    def undo(self) -> None:
        """Give the template's arrays that were filled what they had."""
        for buffer, before in self._before:
            buffer[...] = before
