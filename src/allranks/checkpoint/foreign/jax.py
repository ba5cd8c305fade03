"""Write checkpoints with Orbax."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orbax.checkpoint as ocp  # type: ignore[import-untyped]


def write_orbax(tree: Any, folder: Path) -> None:
    """Write a folder that ``orbax.checkpoint.PyTreeCheckpointer`` restores."""
    with ocp.PyTreeCheckpointer() as checkpointer:
        checkpointer.save(folder.absolute(), tree)
