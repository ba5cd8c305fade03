"""Orbax with JAX arrays, asynchronous as it is by default: as it comes, without zstd, and without OCDBT and zstd."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import jax
import orbax.checkpoint as ocp
from ckpt_methods import HOLD, Method, Tree
from ckpt_state import State


class Orbax:
    in_place, durable, behind = False, False, True

    def __init__(self, handler: ocp.AsyncCheckpointHandler) -> None:
        self._checkpointer = ocp.AsyncCheckpointer(handler)

    def hold(self, state: State) -> Tree:
        return HOLD["jax"](state)

    def save(self, folder: Path, step: int, tree: Tree) -> Callable[[], object]:
        self._checkpointer.save(folder / str(step), args=ocp.args.PyTreeSave(tree))
        return self._checkpointer.wait_until_finished

    def restore(self, folder: Path, step: int, tree: Tree) -> Tree:
        wanted = ocp.checkpoint_utils.construct_restore_args(tree)
        restored: Tree = self._checkpointer.restore(
            folder / str(step), args=ocp.args.PyTreeRestore(tree, restore_args=wanted)
        )
        return jax.block_until_ready(restored)

    def close(self) -> None:
        self._checkpointer.close()


WAYS = {
    "orbax": lambda: ocp.PyTreeCheckpointHandler(),
    "orbax-no-zstd": lambda: ocp.PyTreeCheckpointHandler(use_compression=False),
    "orbax-no-ocdbt-no-zstd": lambda: ocp.PyTreeCheckpointHandler(use_ocdbt=False, use_compression=False),
}


def make(name: str, framework: str) -> Method:
    del framework
    return Orbax(WAYS[name]())
