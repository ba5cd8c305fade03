"""Save steps into the hosts' memory on one rank, and find what a restore can read there.

A step in memory is saved, committed and read by the same code as every step, on another storage
(`replicated_storage.py`). Only the newest step is kept: the step before is removed when it is complete. A failure in
memory never ends a training: it is logged, and the steps on disk are unchanged.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Protocol

from allranks.checkpoint import fence, inventory, paths, rehash
from allranks.checkpoint.cadence import StepCadence
from allranks.checkpoint.manifest import Manifest
from allranks.checkpoint.memory import hosts, placement
from allranks.checkpoint.memory.hosts import HostMemories, ServedHostMemories
from allranks.checkpoint.memory.peers import HostMemory
from allranks.checkpoint.memory.replicated_storage import ReplicatedMemory
from allranks.checkpoint.removal import remove_memory_manifest
from allranks.checkpoint.retention import RunRetention
from allranks.checkpoint.retention_policy import Saved
from allranks.checkpoint.run_entry import RunEntry
from allranks.checkpoint.save_request import SaveOrder, SaveSettings
from allranks.checkpoint.saver import RunSaver
from allranks.digest import digest, show
from allranks.errors import AllranksError, Damaged, NewerFormat, NotThere, SaveFailed, StorageError
from allranks.gate.log import log
from allranks.storage.base import Storage
from allranks.storage.detect import canonical_place
from allranks.world.base import World

_NOT_IN_MEMORY = (
    "%s\nallranks: this step is not in memory. The next one is tried again, and steps on disk are saved as before. "
    "ALLRANKS_MEMORY_FOLDER can name a larger tmpfs."
)
_NOT_TAKEN = (
    "allranks: step %s is in the memory of the hosts of the job that saved it, and newer than every "
    "step in the storage. "
    "To restore it, run on those hosts with memory_every=."
)


@dataclass(frozen=True, slots=True)
class MemoryStep:
    """What all ranks found out about the step in the hosts' memory.

    ``step``: its number; None if its manifest cannot be read. ``storage``: where to restore it from, or None.
    ``why_lost``: why it cannot be restored. ``notes``: which copies are damaged.
    ``on_disk``: whether the step is on disk, too.
    """

    step: int | None
    on_disk: bool
    storage: Storage | None = None
    why_lost: str = ""
    notes: tuple[str, ...] = ()


class MemoryTierMethods(Protocol):
    """What a Checkpointer calls to keep steps in memory. ``MemoryTier`` and ``EmptyMemoryTier`` implement it."""

    def is_save_due(self, step: int, *, previous_step: int | None) -> bool: ...

    def save_to_memory(self, save_order: SaveOrder, state: object) -> None: ...

    def wait_for_save(self) -> None: ...

    def find_step(self, step: int | None) -> MemoryStep | None: ...

    def close(self, *, newest_saved_step: int | None) -> None: ...


def open_tier(
    run: Storage, world: World, cadence: StepCadence, settings: SaveSettings, *, run_entry: RunEntry
) -> MemoryTierMethods:
    """Return the in-memory tier of a run. **Every rank must call.**

    Nothing is kept in memory if ``cadence`` names no steps, or if a host has no usable memory, which is logged.
    """
    if cadence.every is None:
        return EmptyMemoryTier(run, world)
    try:
        hosts = ServedHostMemories(world, canonical_place(run))
    except StorageError as error:
        log("allranks: memory_every: no step is kept in memory, steps on disk are saved as before: %s", error, level=30)
        return EmptyMemoryTier(run, world)
    if len({*world.hosts}) == 1:
        log("allranks: memory_every: on one host, a step in memory survives the processes, but not the host.", level=30)
    return MemoryTier(run, world, cadence, settings, entry=run_entry, hosts=hosts)


class MemoryTier:
    """Keeps the newest step of a run in the memory of its hosts.

    **Every rank must call its methods, in the same order.**

    ``every``: when a step is saved into memory. ``entry``: this job's right to write into the run.
    """

    def __init__(
        self,
        run: Storage,
        world: World,
        every: StepCadence,
        settings: SaveSettings,
        *,
        entry: RunEntry,
        hosts: HostMemories,
    ) -> None:
        self._run, self._world, self._hosts, self._owner = run, world, hosts, entry.nonce
        self._cadence = every
        neighbour_host = placement.neighbour_host(world.host, world.hosts)
        self._memory = ReplicatedMemory(
            run, hosts.mine, None if neighbour_host is None else hosts.memory_of_host(neighbour_host)
        )
        settings = replace(settings, items=(), compresses=False, durable=False)
        nonce = show(digest(entry.nonce, "memory"))
        self._saver = RunSaver(self._memory, world, settings, nonce=nonce, hooks=_MemoryHooks(self, entry.retention))
        self._has_failed = False
        self._older: tuple[str, ...] = ()
        self._previous_files = self._clear_old_files()

    def _clear_old_files(self) -> tuple[str, ...]:
        """Remove older jobs' files from this host's memory; return its files of the current step in memory.

        The returned files are removed after the next step. The first rank of each host does this; other ranks return
        ().
        """
        about = self._world.on_main(lambda: _step_in_memory(self._run))
        nonce, found = about["nonce"], list[str]()
        if placement.is_first_on_host(self._world.rank, self._world.hosts):
            try:
                found = hosts.list_shard_files(self._hosts.mine)
            except StorageError as error:  # the other ranks wait; a read or write there reports the error
                log("allranks: %s", error, level=30)
            left = [
                path for path in found if about["lost"] or paths.is_file_of_save(path, nonce)
            ]  # lost: its save is not known
            _remove_files(self._hosts.mine, [path for path in found if path not in left])
            found = left
        self._world.barrier("memory")
        return tuple(found)

    def is_save_due(self, step: int, *, previous_step: int | None) -> bool:
        """Return whether a step must be saved into memory. ``previous_step``: as in ``StepCadence.is_save_due``."""
        return self._cadence.is_save_due(step, previous_step=previous_step)

    def save_to_memory(self, save_order: SaveOrder, state: object) -> None:
        """Save into memory. A save that fails, now or later, is logged.

        Raises an error on every rank if the ranks' states differ or cannot be stored. Raises Fenced.
        """
        self.wait_for_save()
        self._older = self._memory.written_paths()
        with self._log_failure():
            self._saver.start_save(save_order, state)

    def wait_for_save(self) -> None:
        """Wait for the running save, if there is one. Raises Fenced."""
        with self._log_failure():
            self._saver.wait_for_save()

    @contextmanager
    def _log_failure(self) -> Iterator[None]:
        """Log a save that failed in the block; only the first of several failures in a row is logged."""
        try:
            yield
        except SaveFailed as error:
            if not self._has_failed:
                log(_NOT_IN_MEMORY, error, level=30)
            self._has_failed = True

    def after_commit(self) -> None:
        """Remove this rank's files of older steps, because a newer step is complete."""
        self._has_failed = False
        _remove_files(self._memory, self._older)
        _remove_files(self._hosts.mine, self._previous_files)
        self._older = self._previous_files = ()

    def find_step(self, step: int | None) -> MemoryStep | None:
        """Return the step in memory, verified, if it is ``step`` or, by default, the newest. Every rank must call.

        Returns None if nothing is in memory, or the run has a newer step on disk. Each rank verifies every byte of its
        share of the host's files.
        """
        self.wait_for_save()
        about = self._world.on_main(lambda: _step_to_restore(self._run, step))
        if about is None:
            return None
        manifest, sound, faults = self._verify_share(about)
        said = self._world.all_gather([manifest is not None, sound, faults], name="memory")
        if about["lost"] or manifest is None or not all(seen for seen, *_ in said):
            return MemoryStep(
                about["step"], about["on_disk"], why_lost=about["lost"] or "not all ranks see its manifest"
            )
        return self._choose_copies(manifest, said, on_disk=about["on_disk"])

    def _verify_share(self, about: dict[str, Any]) -> tuple[Manifest | None, list[str], dict[str, str]]:
        """Verify this rank's share of the files in its host's memory.

        Return the manifest of the step in memory (None if it cannot be read), the intact files, and the faults of the
        others.
        """
        try:
            manifest = inventory.load_from_memory(self._run)
        except AllranksError:
            return None, [], {}
        if manifest.nonce != about["nonce"]:
            return None, [], {}
        try:
            there = {*hosts.list_shard_files(self._hosts.mine)}
            here = [one.name for one in manifest.files if f"{paths.step_folder(manifest.step)}/{one.name}" in there]
            mine = placement.files_to_verify(here, self._world.rank, self._world.hosts)
            files = tuple(one for one in manifest.files if one.name in mine)
            found = rehash.verify_checkpoint(self._hosts.mine, replace(manifest, files=files, leaves={}))
        except StorageError:  # this host has nothing that can be read
            return manifest, [], {}
        faults = {one.file: f"bytes {one.where[0]}-{one.where[1]}: {one.what}" for one in found}
        return manifest, [name for name in mine if name not in faults], faults

    def _choose_copies(self, manifest: Manifest, said: Sequence[Any], *, on_disk: bool) -> MemoryStep:
        hosts = self._world.hosts
        sound: dict[str, list[str]] = {host: [] for host in hosts}
        faults: dict[str, dict[str, str]] = {host: {} for host in hosts}
        for host, (_, names, wrong) in zip(hosts, said, strict=True):
            sound[host] += names
            faults[host] |= wrong
        choice = placement.choose_copies([file.name for file in manifest.files], sound, faults)
        if choice.missing:
            return MemoryStep(manifest.step, on_disk, why_lost=placement.describe_loss(choice, hosts))
        here, step = self._world.host, paths.step_folder(manifest.step)
        nearest = {name: here if here in there else there[0] for name, there in choice.holders.items()}
        self._memory.holders = {f"{step}/{name}": self._hosts.memory_of_host(host) for name, host in nearest.items()}
        return MemoryStep(manifest.step, on_disk, self._memory, notes=choice.notes)

    def close(self, *, newest_saved_step: int | None) -> None:
        """Stop serving this host's memory, and empty it if its step is not needed.

        It is emptied if the run still belongs to this job, and ``newest_saved_step`` is at least as new as the step in
        memory.
        ``newest_saved_step``: the newest step that this job has saved to disk, or None.
        """
        try:
            self.wait_for_save()
            owner = fence.newest_fence(self._run)
            if owner is None or owner.nonce != self._owner:
                return
            about = _step_in_memory(self._run)
            if about["step"] is not None and (newest_saved_step is None or newest_saved_step < about["step"]):
                log("allranks: step %d is only in the memory of the hosts.", about["step"], level=30)
            elif not about["lost"]:
                if self._world.is_main:
                    remove_memory_manifest(self._run)
                if placement.is_first_on_host(self._world.rank, self._world.hosts):
                    _remove_files(self._hosts.mine, hosts.list_shard_files(self._hosts.mine))
        except StorageError as error:
            log("allranks: a step stays in memory: %s", error, level=30)
        finally:
            self._hosts.close()


class EmptyMemoryTier:
    """The MemoryTierMethods of a run that keeps no steps in memory. It logs a step in memory that it cannot restore."""

    def __init__(self, run: Storage, world: World) -> None:
        self._run, self._world = run, world

    def is_save_due(self, step: int, *, previous_step: int | None) -> bool:
        del step, previous_step
        return False

    def save_to_memory(self, save_order: SaveOrder, state: object) -> None:
        del save_order, state
        raise AssertionError("no step is due")

    def wait_for_save(self) -> None:
        """Do nothing, because no save is running."""

    def find_step(self, step: int | None) -> MemoryStep | None:
        try:
            about = _step_to_restore(self._run, step) if self._world.is_main else None
        except StorageError as error:
            about = {"lost": str(error)}
        if about and about["lost"]:
            log("allranks: a step in the memory of the hosts cannot be read: %s", about["lost"], level=30)
        elif about and not about["on_disk"]:
            log(_NOT_TAKEN, about["step"], level=30)
        return None

    def close(self, *, newest_saved_step: int | None) -> None:
        """Do nothing, because nothing is served."""


class _MemoryHooks:
    """The commit hooks of steps in memory.

    Before a commit the run's own hook is called; after it, older files are removed.
    """

    def __init__(self, of: MemoryTier, run: RunRetention | None) -> None:
        self._of, self._run = of, run

    def before_commit(self) -> None:
        assert self._run is not None
        self._run.before_commit()

    def after_commit(self, saved: Saved, *, replaced: bool) -> None:
        del saved, replaced
        self._of.after_commit()


def _remove_files(memory: HostMemory, files: Iterable[str]) -> None:
    """Remove files, and folders that are empty afterwards. An error is logged."""
    try:
        files = tuple(files)
        for path in files:
            memory.delete(path)
        for one in {path.rpartition("/")[0] for path in files}:
            memory.remove_folder(one)
    except StorageError as error:
        log("allranks: an older step stays in memory: %s", error, level=30)


def _step_in_memory(run: Storage) -> dict[str, Any]:
    """Return what the run's folder says of the step in memory.

    ``step``: its number or None. ``nonce``: of its save. ``lost``: why its manifest cannot be read, or "".
    """
    try:
        manifest = inventory.load_from_memory(run)
        return {"step": manifest.step, "nonce": manifest.nonce, "lost": ""}
    except NotThere:
        return {"step": None, "nonce": "", "lost": ""}
    except (Damaged, NewerFormat) as error:
        return {"step": None, "nonce": "", "lost": str(error)}


def _step_to_restore(run: Storage, step: int | None) -> dict[str, Any] | None:
    """Return ``_step_in_memory`` if a restore must use it: it is ``step``, or it is not older than any step on disk."""
    about, there = _step_in_memory(run), inventory.complete_steps(run)
    held = about["step"]
    if held is None:
        return {**about, "on_disk": False} if about["lost"] and step is None else None
    if (step is None and there and there[-1] > held) or step not in (None, held):
        return None
    return {**about, "on_disk": held in there}
