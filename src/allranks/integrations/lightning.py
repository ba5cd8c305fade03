"""Plugins for Lightning: ``Trainer(plugins=[CheckpointIO()], callbacks=[Ranks()])``."""

# ruff: noqa: ARG002  # hooks have the arguments that Lightning gives them

from __future__ import annotations

import os
import secrets
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import Any
from weakref import ReferenceType, ref

import numpy as np
import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.plugins.io import TorchCheckpointIO
from lightning.pytorch.strategies import DeepSpeedStrategy, FSDPStrategy
from lightning.pytorch.utilities.model_helpers import is_overridden

from allranks.arrays.leaves.numpy import DTYPES
from allranks.checkpoint import inventory
from allranks.checkpoint.checkpointer import Checkpointer
from allranks.checkpoint.names import Rename
from allranks.checkpoint.removal import remove_run
from allranks.errors import AllranksError, NotThere
from allranks.gate.log import log
from allranks.integrations import document, loop
from allranks.loading.load import load
from allranks.loading.report import LoadReport
from allranks.program import PREEMPTED
from allranks.storage import deletion
from allranks.storage.base import Storage
from allranks.storage.detect import open_storage
from allranks.storage.local import LocalStorage
from allranks.world.base import World
from allranks.world.detect import single_world
from allranks.world.progress import progress

# Each rank holds a part of the parameters, which these strategies themselves put together.
_SHARDED = (FSDPStrategy, DeepSpeedStrategy)
# Below this key of ``extra`` a checkpoint has all that is no array.
_FORMAT = "lightning"


class Ranks(Callback):  # type: ignore[misc]  # mypy does not follow Lightning
    """Load weights on every rank, compare all ranks, report hangs, and save on preemption.

    When the training starts, parameters, buffers and optimizers of all ranks are compared. A difference raises Mismatch
    on every rank, naming ranks and leaves.

    ``load``: the checkpoint for ``allranks.load``; ``rename``, ``allow_missing``, ``allow_unexpected`` and ``strict``
    are passed on. It is loaded on every rank in ``setup``, before the strategy wraps the model, once into each model.
    (A model that is made in ``configure_model`` is loaded after that.) ``report`` is then the LoadReport.
    ``verify_every``: also compare parameters and optimizers after each multiple of so many steps; 0: never.
    ``hang``: passed to ``allranks.init()``, which the callback calls unless the program has done so.
    ``save_on_preemption``: after a SIGTERM on any rank, all ranks save ``last.ckpt`` after the same step, into the
    folder of the ModelCheckpoint, and exit with code 143. ``trainer.fit(ckpt_path="last")`` resumes from it.
    """

    def __init__(
        self,
        load: str | Path | None = None,
        rename: Rename | None = None,
        allow_missing: Iterable[str] = (),
        allow_unexpected: Iterable[str] = (),
        strict: bool | float = True,
        verify_every: int = 0,
        hang: bool = True,
        save_on_preemption: bool = True,
    ) -> None:
        self.report: LoadReport | None = None
        self._load = load
        self._loaded: ReferenceType[LightningModule] | None = None  # a second fit of it goes on with what it has
        self._how: dict[str, Any] = {
            "rename": rename,
            "allow_missing": allow_missing,
            "allow_unexpected": allow_unexpected,
            "strict": strict,
        }
        self._hang = hang
        self._loop = loop.TrainingLoop(verify_every=verify_every, save_on_preemption=save_on_preemption)

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        self._world(trainer)
        if not is_overridden("configure_model", pl_module):
            self._load_once(trainer, pl_module)

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._load_once(trainer, pl_module)

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        world, state = self._world(trainer), {"model": pl_module, **_replicated_optimizers(trainer)}
        if isinstance(trainer.strategy, _SHARDED):
            log("allranks: under %s no weights are compared.", type(trainer.strategy).__name__, level=30)
            state = {}
        self._loop.begin_training(world, state, trainer.global_step, save_state=lambda _: _save_last(trainer))

    def on_train_batch_start(self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int) -> None:
        progress.doing("training step", step=trainer.global_step)

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        def state() -> dict[str, Any]:
            if isinstance(trainer.strategy, _SHARDED):
                return {}
            return {"parameters": dict(pl_module.named_parameters()), **_replicated_optimizers(trainer)}

        notice = self._loop.after_step(trainer.global_step, state)
        if notice is not None:
            self._loop.save_and_exit(notice)

    def on_validation_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._load_once(trainer, pl_module)

    def on_validation_batch_start(self, *_: Any, **__: Any) -> None:
        progress.doing("validation", stage="evaluation")

    def on_test_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._load_once(trainer, pl_module)

    def on_predict_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._load_once(trainer, pl_module)

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._loop.end_training(still_saves=True)

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        if isinstance(exception, Exception) and self._loop.save_after_error(exception):
            raise SystemExit(PREEMPTED)
        self._loop.restore_handler()

    def _world(self, trainer: Trainer) -> World:
        return loop.join_world(trainer.global_rank, trainer.world_size, reports_hangs=self._hang)

    def _load_once(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if self._load is None or (self._loaded is not None and self._loaded() is pl_module):
            return
        self.report = load(self._load, pl_module, world=self._world(trainer), **self._how)
        self._loaded = ref(pl_module)

    def __getstate__(self) -> dict[str, Any]:  # ddp_spawn sends callbacks to other processes
        return {**self.__dict__, "_loaded": None}


def _replicated_optimizers(trainer: Trainer) -> dict[str, Any]:
    """Return the optimizers, except sharded ones such as torch's ZeroRedundancyOptimizer."""
    whole = [one for one in trainer.optimizers if not hasattr(one, "consolidate_state_dict")]
    return {"optimizers": whole}


def _save_last(trainer: Trainer) -> str:
    """Save ``last.ckpt``, and return its path. Every rank must call."""
    kept = trainer.checkpoint_callback
    folder = kept.dirpath if isinstance(kept, ModelCheckpoint) and kept.dirpath else trainer.default_root_dir
    path = os.path.join(folder, f"{ModelCheckpoint.CHECKPOINT_NAME_LAST}{ModelCheckpoint.FILE_EXTENSION}")
    trainer.save_checkpoint(path)
    trainer.strategy.checkpoint_io.teardown()  # it may be written behind
    return path


class CheckpointIO(TorchCheckpointIO):  # type: ignore[misc]
    """Saves a Trainer's checkpoints in allranks' format.

    A checkpoint is saved completely or not at all, with a digest of every byte, and without pickles. It works for every
    strategy in which rank 0 saves everything (DDP; FSDP and DeepSpeed if they save one file). Instead of a file
    ``last.ckpt`` there is a folder of that name, a run with one step in it, for ``allranks.load`` and
    ``allranks ckpt``. The old checkpoint is removed when the new one is complete (a file of Lightning's is kept as
    ``last.ckpt.old`` until then). Files that Lightning saved can be loaded, too. Raises CannotStore, naming the path,
    for a value that is no tensor, array, JSON value or similar (a class, a function in ``hyper_parameters``).

    ``behind``: a save returns when the state is copied; the copy is written during the training. The next call raises
    any error. ``integrity``: ``xxh3-128`` or ``blake3``.
    """

    def __init__(self, *, behind: bool = False, integrity: str = "xxh3-128") -> None:
        self._behind, self._integrity = behind, integrity
        self._thread = threading.current_thread().name
        self._last: Checkpointer | None = None
        self._aside: str | None = None

    def save_checkpoint(
        self, checkpoint: dict[str, Any], path: str | os.PathLike[str], storage_options: Any = None
    ) -> None:
        """Save a checkpoint. Only rank 0 may call it."""
        if storage_options is not None:
            raise TypeError(f"CheckpointIO takes no storage_options, and got {storage_options!r}.")
        if threading.current_thread().name != self._thread:
            raise AllranksError(
                "allranks' CheckpointIO was called from another thread than the training's.",
                remedy="In place of AsyncCheckpointIO(CheckpointIO()), use CheckpointIO(behind=True).",
            )
        self._wait_for_save()
        arrays, words = document.split_arrays(checkpoint)
        if os.path.islink(path):  # ModelCheckpoint(save_last="link"): what it led to stays as it is
            deletion.delete_tree(path)
        elif os.path.isfile(path):  # Lightning's own, of before
            self._aside = f"{os.fspath(path)}.{secrets.token_hex(4)}.old"
            os.replace(path, self._aside)
        run = Checkpointer(path, single_world(), keep_last=1, integrity=self._integrity, on_sigterm=False)
        self._last = run
        step = max([int(checkpoint.get("global_step", 0)), *(step + 1 for step in run.steps())])
        with progress.inside("save", os.fspath(path)):
            run.save(step, arrays, extra={_FORMAT: words})
            if not self._behind:
                self._wait_for_save()

    def load_checkpoint(
        self, path: str | os.PathLike[str], map_location: Any = None, weights_only: bool | None = None
    ) -> dict[str, Any]:
        """Return the checkpoint, on the CPU unless ``map_location`` is a device. Any rank may call it alone."""
        self._wait_for_save()
        if os.path.isfile(path):
            how = {} if map_location is None else {"map_location": map_location}
            theirs: dict[str, Any] = super().load_checkpoint(path, weights_only=weights_only, **how)
            return theirs
        storage = open_storage(path)
        words, like = _template_of_newest(storage)
        restored = Checkpointer(storage, single_world(), read_only=True).restore(like)
        assert restored is not None
        arrays = restored[0]
        if map_location is not None:
            arrays |= {name: one.to(map_location) for name, one in arrays.items() if isinstance(one, torch.Tensor)}
        checkpoint: dict[str, Any] = document.join_arrays(words, arrays)
        return checkpoint

    def remove_checkpoint(self, path: str | os.PathLike[str]) -> None:
        """Remove a checkpoint, of allranks or Lightning, its manifest first. Waits for a running save.

        Files of other programs in a checkpoint's folder stay, and are logged.
        """
        self._wait_for_save()
        if os.path.islink(path):  # what it leads to stays
            deletion.delete_tree(path)
            return
        if os.path.isfile(path):
            super().remove_checkpoint(path)
            return
        storage = open_storage(path)
        left = remove_run(storage)
        if not left and isinstance(storage, LocalStorage):
            left = deletion.delete_tree(storage.url, is_ours=lambda _: False)
        if left:
            log("allranks: files of others stay in %s: %s.", storage.url, ", ".join(left[:8]), level=30)

    def teardown(self) -> None:
        """Wait for a running save."""
        self._wait_for_save()

    def _wait_for_save(self) -> None:
        """Wait for a running save, and raise its error if it failed."""
        run, self._last = self._last, None
        if run is not None:
            with run:
                run.wait()
            if self._aside is not None:
                deletion.delete_tree(self._aside)
                self._aside = None


def _template_of_newest(storage: Storage) -> tuple[Any, dict[str, document.Array]]:
    """Return the JSON part of the newest checkpoint, and an empty array for each of its arrays. Raises NotThere."""
    steps = inventory.complete_steps(storage)
    if not steps:
        raise NotThere(f"load_checkpoint: there is no checkpoint at {storage.url}.", path=storage.url)
    manifest = inventory.load_manifest(storage, steps[-1])
    if not isinstance(manifest.extra, dict) or _FORMAT not in manifest.extra:
        raise AllranksError(
            f"{storage.url} is a checkpoint, but CheckpointIO has not saved it: expected a checkpoint of a Trainer.",
            remedy="To load only the weights, use Ranks(load=...).",
        )
    words, room = manifest.extra[_FORMAT], {}
    for name, is_tensor in document.array_names(words):
        leaf = manifest.leaves[name]
        made = torch.empty(leaf.shape, dtype=getattr(torch, leaf.dtype)) if is_tensor else None
        room[name] = np.empty(leaf.shape, DTYPES[leaf.dtype]) if made is None else made
    return words, room
