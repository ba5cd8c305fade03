"""Arrays in the host's memory taken for a device's: so devices' fingerprints are tested where there are none."""

from __future__ import annotations

from typing import Any

import pytest

from allranks.arrays.flat_tree import FlatTree


def pretend(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have ``verify`` believe that nothing lies in the host's memory."""
    copies = FlatTree.copies_of_array

    def off(self: FlatTree, array: int) -> tuple[Any, ...]:
        return tuple(copy._replace(on_host=False) for copy in copies(self, array))

    monkeypatch.setattr(FlatTree, "copies_of_array", off)
