"""Our own checkpoints: every call of our interface that the checkpoint benches make is in this file."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ckpt_methods import HOLD, Method, Tree
from ckpt_state import State

import allranks


class Ours:
    durable = True

    def __init__(self, framework: str, *, block: bool, options: dict[str, Any]) -> None:
        self.in_place = framework != "jax"  # JAX arrays cannot be changed
        self.behind = not block
        self._framework, self._options = framework, options
        self._ckpt: Any = None

    def hold(self, state: State) -> Tree:
        return HOLD[self._framework](state)

    def save(self, folder: Path, step: int, tree: Tree) -> Callable[[], object]:
        ckpt = self._opened(folder)
        if self.behind:
            return ckpt.save(step, tree).wait
        ckpt.save(step, tree, block=True)
        return lambda: None

    def restore(self, folder: Path, step: int, tree: Tree) -> Tree:
        found = self._opened(folder).restore(like=tree)
        if found is None or found[1] != step:
            raise RuntimeError(f"restore() found {found and found[1]}, not step {step}")
        return found[0]

    def close(self) -> None:
        if self._ckpt is not None:
            self._ckpt.close()

    def _opened(self, folder: Path) -> Any:
        """Open the run at the first call: a job has one Checkpointer, which keeps its buffers."""
        if self._ckpt is None:
            joined = "ALLRANKS_RANK" in os.environ
            world = allranks.current() if joined else allranks.init(backend="single")
            self._ckpt = allranks.Checkpointer(folder, world, **self._options)
        return self._ckpt


WAYS: dict[str, tuple[bool, dict[str, Any]]] = {
    "ours": (True, {}),
    "ours-async": (False, {}),
    "ours-no-digests": (True, {"integrity": "none"}),
}


def make(name: str, framework: str) -> Method:
    block, options = WAYS[name]
    return Ours(framework, block=block, options=options)
