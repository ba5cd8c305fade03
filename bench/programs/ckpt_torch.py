"""What torch users save with: torch.save, safetensors, torch.distributed.checkpoint (DCP), torchsnapshot."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed.checkpoint as dcp
from ckpt_methods import HOLD, Method, Tree
from ckpt_state import State


def _flat(tree: Tree) -> dict[str, Any]:
    return {f"{group}.{name}": value for group, values in tree.items() for name, value in values.items()}


def _nested(flat: dict[str, Any]) -> Tree:
    tree: Tree = {}
    for path, value in flat.items():
        group, name = path.split(".", 1)
        tree.setdefault(group, {})[name] = value
    return tree


def _nothing_left() -> None:
    """A blocking save: when it returns all is said."""


class _Peer:
    in_place, durable, behind, framework = False, False, False, "torch"

    def hold(self, state: State) -> Tree:
        return HOLD[self.framework](state)

    def close(self) -> None:
        return


class TorchSave(_Peer):
    def save(self, folder: Path, step: int, tree: Tree) -> Callable[[], object]:
        target = folder / str(step)
        target.mkdir()
        torch.save(tree, target / "state.pt")
        return _nothing_left

    def restore(self, folder: Path, step: int, tree: Tree) -> Tree:
        del tree
        loaded: Tree = torch.load(folder / str(step) / "state.pt")
        return loaded


class Safetensors(_Peer):
    def __init__(self, framework: str) -> None:
        self.framework = framework
        self._library = importlib.import_module(f"safetensors.{framework}")

    def save(self, folder: Path, step: int, tree: Tree) -> Callable[[], object]:
        target = folder / str(step)
        target.mkdir()
        self._library.save_file(_flat(tree), target / "state.safetensors")
        return _nothing_left

    def restore(self, folder: Path, step: int, tree: Tree) -> Tree:
        del tree
        return _nested(self._library.load_file(folder / str(step) / "state.safetensors"))


class Dcp(_Peer):
    """It fsyncs its files, not the folder."""

    in_place = True

    def __init__(self, *, threads: int = 1, behind: bool = False) -> None:
        self._threads, self.behind = threads, behind

    def save(self, folder: Path, step: int, tree: Tree) -> Callable[[], object]:
        writer = dcp.FileSystemWriter(folder / str(step), thread_count=self._threads)
        if not self.behind:
            dcp.save(tree, storage_writer=writer)
            return _nothing_left
        return dcp.async_save(tree, storage_writer=writer).result

    def restore(self, folder: Path, step: int, tree: Tree) -> Tree:
        dcp.load(tree, checkpoint_id=folder / str(step))
        return tree


class Snapshot(_Peer):
    in_place, behind = True, True

    def save(self, folder: Path, step: int, tree: Tree) -> Callable[[], object]:
        import torchsnapshot

        return torchsnapshot.Snapshot.async_take(str(folder / str(step)), self._app(tree)).wait

    def restore(self, folder: Path, step: int, tree: Tree) -> Tree:
        import torchsnapshot

        torchsnapshot.Snapshot(str(folder / str(step))).restore(self._app(tree))
        return tree

    @staticmethod
    def _app(tree: Tree) -> dict[str, Any]:
        import torchsnapshot

        return {"state": torchsnapshot.StateDict(**tree)}


WAYS: dict[str, Callable[[], Method]] = {
    "torch.save": TorchSave,
    "safetensors.torch": lambda: Safetensors("torch"),
    "safetensors.numpy": lambda: Safetensors("numpy"),
    "dcp": Dcp,
    "dcp-2-threads": lambda: Dcp(threads=2),
    "dcp-async": lambda: Dcp(behind=True),
    "torchsnapshot-async": Snapshot,
}


def make(name: str, framework: str) -> Method:
    del framework
    return WAYS[name]()
