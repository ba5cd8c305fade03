"""Integrate Accelerate: compare all ranks after ``prepare``, and make ``save_state`` all or nothing."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TypeVar

import torch
from accelerate import Accelerator  # type: ignore[import-untyped]
from accelerate.utils import DistributedType  # type: ignore[import-untyped]

from allranks.checkpoint import agree
from allranks.checkpoint.json_value import parse_json
from allranks.consistency.verify import verify
from allranks.digest import hasher_by_name
from allranks.errors import (
    AllranksError,
    Damaged,
    DataError,
    NotAFile,
    NotThere,
    StepExists,
    StorageError,
    Unsafe,
    name_ranks,
)
from allranks.gate.log import log
from allranks.integrations import loop
from allranks.integrations.dataloader import readers_of
from allranks.storage import deletion, limits
from allranks.storage.local import LocalStorage
from allranks.world.progress import progress

T = TypeVar("T")
Listing = dict[str, int]

SEAL = "allranks.json"
_STEP = re.compile(r"step-(\d+)")
_SHARDED = (DistributedType.DEEPSPEED, DistributedType.MEGATRON_LM)


class Ranks:
    """The checks of allranks for an Accelerator. **Every rank must make one, and call its methods in the same order.**

    Examples:
        >>> ranks = Ranks(accelerator, "runs/a", verify_every=100)
        >>> model, optimizer, loader = ranks.prepare(model, optimizer, loader)
        >>> step = ranks.load_state() or 0
        >>> for batch in loader:
        ...     step += 1
        ...     ranks.after(step)

    ``folder``: where states are saved; the same folder on all hosts.
    ``verify_every``: compare all ranks every so many steps; 0: at ``prepare`` and ``load_state`` only. A difference
    raises Mismatch on every rank, naming ranks and leaves.
    ``hang``: passed to ``allranks.init()``, which is called here unless the program has done so.
    ``save_on_preemption``: after a SIGTERM on any rank, all ranks save in the same call of ``after``, and exit with
    code 143.

    A loader over ``integrations.torch.Batches`` or ``BatchSampler`` is prepared without being sharded a second time.
    """

    def __init__(
        self,
        accelerator: Accelerator,
        folder: str | os.PathLike[str],
        *,
        verify_every: int = 0,
        hang: bool = True,
        save_on_preemption: bool = True,
    ) -> None:
        if accelerator.project_configuration.automatic_checkpoint_naming:
            raise AllranksError(
                "automatic_checkpoint_naming lets Accelerate choose the folder, and remove older ones before it saves.",
                remedy="Leave automatic_checkpoint_naming out: Ranks.save_state(step) names the folders.",
            )
        self._accelerator, self._folder = accelerator, Path(folder)
        self._world = loop.join_world(accelerator.process_index, accelerator.num_processes, reports_hangs=hang)
        self._loop = loop.TrainingLoop(verify_every=verify_every, save_on_preemption=save_on_preemption)
        self._held: list[Any] = []

    def prepare(self, *objects: Any, **how: Any) -> Any:
        """Return the result of ``accelerator.prepare``, and check that all ranks hold equal modules and optimizers."""
        prepared = self._accelerator.prepare(*objects, **how)
        made = prepared if isinstance(prepared, tuple) else (prepared,)
        self._held += [one for one in made if isinstance(one, torch.nn.Module | torch.optim.Optimizer)]
        self._loop.begin_training(
            self._world, self._replicated_objects(), 0, save_state=lambda step: str(self.save_state(step))
        )
        return prepared

    def after(self, step: int) -> None:
        """Report that a step is done. Compares the ranks if it is due; saves and exits if a rank is to be preempted."""
        notice = self._loop.after_step(step, self._objects_without_buffers)
        if notice is not None:
            self._loop.save_and_exit(notice)
        progress.doing("training", step=step)

    def save_state(self, step: int, **how: Any) -> Path:
        """Save with ``accelerator.save_state(**how)`` into the folder ``step-<step>``, and return the folder's path.

        The folder gets this name when every rank has written its files and the digests of all files are in it; before
        that, no such folder exists. Raises StepExists. An error on one rank is raised on every rank.
        """
        world, final = self._world, self._place(step)
        hidden = final.with_name(f".{final.name}")
        world.agree(step, name="save_state")
        with progress.inside("save", final.name):
            self._call_on_main("save_state", lambda: _make_way(hidden, final, step))
            self._call_on_all_ranks("save_state", lambda: str(self._accelerator.save_state(str(hidden), **how)))
            seal = {"step": step, "ranks": world.size, "files": self._file_digests(hidden)}
            self._call_on_main("save_state", lambda: _publish_state(hidden, final, seal))
        self._loop.note_save(step, str(final))
        return final

    def load_state(self, step: int | None = None, **how: Any) -> int | None:
        """Load a state with ``accelerator.load_state(**how)``: the newest, or that of ``step``. Return its step.

        Returns None, on all ranks, if there is no state. Raises Damaged if the digest of a file differs from the saved
        one, and Mismatch if the ranks differ after the load.
        """
        world = self._world
        found = self._call_on_main("load_state", lambda: _newest_seal(self._folder, step))
        if found is None:
            return None
        where = self._place(found["step"])
        with progress.inside("restore", where.name):
            digests = self._file_digests(where)
        if odd := sorted(
            name for name in found["files"].keys() | digests if found["files"].get(name) != digests.get(name)
        ):
            raise Damaged(
                f"{where}: {', '.join(odd)} differ from the saved files: their digests are different.",
                path=str(where),
                step=found["step"],
            )
        if found["ranks"] != world.size:
            _refuse_shards(where, found["ranks"], self._accelerator._dataloaders)
            log("allranks: %s is of %d ranks: random generators go on anew.", where, found["ranks"], level=30)
        self._call_on_all_ranks("load_state", lambda: self._accelerator.load_state(str(where), **how))
        verify(self._replicated_objects(), found["step"], world=world)
        self._loop.note_resume(found["step"], str(where))
        return int(found["step"])

    def end(self) -> None:
        """End the training: from now on SIGTERM ends each rank at once."""
        self._loop.end_training()

    def _place(self, step: int) -> Path:
        return self._folder / f"step-{step}"

    def _replicated_objects(self) -> dict[str, Any]:
        """Return the prepared objects that should be equal on all ranks; {} if they are sharded."""
        if self._accelerator.distributed_type in _SHARDED or (
            self._accelerator.distributed_type == DistributedType.FSDP and not self._accelerator.is_fsdp2
        ):
            log("allranks: under %s no weights are compared.", self._accelerator.distributed_type.value, level=30)
            return {}
        unwrap = self._accelerator.unwrap_model
        return {"prepared": [unwrap(one) if isinstance(one, torch.nn.Module) else one for one in self._held]}

    def _objects_without_buffers(self) -> dict[str, Any]:
        """Return the prepared objects without buffers, which each rank may change between two forward passes of DDP."""
        held = self._replicated_objects().get("prepared", [])
        plain = [dict(one.named_parameters()) if isinstance(one, torch.nn.Module) else one for one in held]
        return {"prepared": plain}

    def _file_digests(self, folder: Path) -> dict[str, str]:
        """Return the digest of every file of a folder, by name. Each rank reads its share. **Every rank must call.**"""
        world = self._world
        seen = self._call_on_all_ranks("look", lambda: _file_sizes(folder))
        if blind := [rank for rank, one in enumerate(seen) if one != seen[0]]:
            raise StorageError(
                f"{name_ranks(blind)} do not see the files that rank 0 sees in {folder}.",
                path=str(folder),
                remedy="Use a folder that all hosts share.",
            )
        mine = sorted(seen[0])[world.rank :: world.size]
        told = self._call_on_all_ranks("digests", lambda: {name: _file_digest(folder / name) for name in mine})
        return {name: said for one in told for name, said in one.items()}

    def _call_on_main(self, name: str, act: Callable[[], T]) -> T:
        """Call ``act`` on rank 0 only, and return its result on every rank. Its error is raised on every rank."""
        first: T = self._call_on_all_ranks(name, act if self._world.is_main else lambda: None)[0]
        return first

    def _call_on_all_ranks(self, name: str, act: Callable[[], Any]) -> list[Any]:
        """Call ``act`` on each rank, and return the results in rank order. **Every rank must call.**

        An error on one rank is raised on every rank.
        """
        error: Exception | None = None
        result = None
        try:
            result = act()
        except Exception as found:  # the others must not wait
            error = found
        told = self._world.all_gather([agree.refusal_of(error), result], name=name)
        if error is not None:
            raise error
        if refused := agree.first_refusal([one[0] for one in told]):
            raise agree.refusal_error(refused, operation=f"rank {self._world.rank}: {name}", step=None)
        return [one[1] for one in told]


def _refuse_shards(where: Path, ranks: int, loaders: Iterable[Any]) -> None:
    """Raise DataError if a loader's state counts batches of a shard of another number of ranks."""
    for one in loaders:
        if getattr(one, "use_stateful_dataloader", False) and not list(readers_of(one)):
            raise DataError(
                f"{where} is of {ranks} ranks, and says how many batches a rank took of its part of a "
                "StatefulDataLoader: with another number of ranks the parts are others.",
                remedy=f"Resume on {ranks} ranks; or read through allranks.integrations.torch.Batches or BatchSampler, "
                "whose states work with any number of ranks.",
            )


def _make_way(hidden: Path, final: Path, step: int) -> None:
    if final.exists():
        raise StepExists(f"save_state: the folder {final} already exists.", step=step, remedy="Save another step.")
    deletion.delete_tree(hidden)  # of a save that never ended


def _publish_state(hidden: Path, final: Path, seal: dict[str, Any]) -> None:
    """Make everything in a folder durable, and then rename the folder to its final name."""
    (hidden / SEAL).write_text(json.dumps(seal, indent=1))
    for folder, _, files in os.walk(hidden):
        for name in [*files, "."]:
            _make_durable(os.path.join(folder, name))
    hidden.rename(final)
    _make_durable(str(final.parent))


def _make_durable(path: str) -> None:
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _newest_seal(folder: Path, step: int | None) -> dict[str, Any] | None:
    """Return the content of the seal file of the newest state, or of ``step``; None if there is no state.

    Raises Damaged for a file with other content, NotThere for a missing one.
    """
    there = [int(found[1]) for one in folder.glob("step-*") if (found := _STEP.fullmatch(one.name))]
    if step is None and not there:
        return None
    where = folder / f"step-{max(there) if step is None else step}" / SEAL
    try:
        seal: dict[str, Any] = parse_json(LocalStorage(where.parent).get(SEAL, most=limits.metadata_limit()))
        return {name: seal[name] for name in ("step", "ranks", "files")}
    except (NotAFile, Unsafe, ValueError, LookupError, TypeError) as error:
        raise Damaged(f"{where} is not what Ranks.save_state writes ({error}).", path=str(where)) from error
    except NotThere:
        raise NotThere(
            f"there is no {where}: nothing that Ranks.save_state has saved.",
            path=str(where),
            remedy="Load what Accelerate itself saved with accelerator.load_state, and compare with allranks.verify.",
        ) from None


def _file_sizes(folder: Path) -> Listing:
    """Return the size in bytes of each file below a folder, by path; the seal file is left out."""
    files = [one for one in folder.rglob("*") if one.is_file() and one.name != SEAL]
    return {one.relative_to(folder).as_posix(): one.stat().st_size for one in files}


def _file_digest(file: Path) -> str:
    with file.open("rb") as opened:
        stream = hasher_by_name("xxh3-128").stream()
        while piece := opened.read(8 << 20):
            stream.update(piece)
    return stream.hexdigest()
