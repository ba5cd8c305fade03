"""Save a training state while the training continues, and restore it on any other number of ranks."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Any, Literal, TypeVar

from allranks import agent
from allranks.checkpoint import inventory, match, preemption, retention_policy
from allranks.checkpoint.cadence import MinuteTimer, StepCadence
from allranks.checkpoint.detect import check_compression
from allranks.checkpoint.holds import hold_step
from allranks.checkpoint.items import check_known
from allranks.checkpoint.memory.tier import open_tier
from allranks.checkpoint.names import Rename
from allranks.checkpoint.per_rank import RankChoices, glob_tuple
from allranks.checkpoint.position import TrainingPosition, share_memory
from allranks.checkpoint.restore import Restored, RestoreSettings, restore
from allranks.checkpoint.resume_gate import LoadedWeights, check_first_metrics
from allranks.checkpoint.retention import reason_to_refuse
from allranks.checkpoint.run_entry import RunEntry, enter_run, retention_rules
from allranks.checkpoint.save_request import SaveHandle, SaveOrder, SaveSettings
from allranks.checkpoint.saver import RunSaver
from allranks.errors import AllranksError, DoesNotFit, NewerFormat, NotThere, SaveFailed, StorageError
from allranks.gate.log import log
from allranks.program import PREEMPTED
from allranks.storage.base import Storage
from allranks.storage.detect import open_storage
from allranks.world import sigterm
from allranks.world.base import World
from allranks.world.detect import current
from allranks.world.notices import Kind
from allranks.world.progress import progress

T = TypeVar("T")
_WHO = "Checkpointer(on_sigterm=True)"


class Checkpointer:
    """Saves into the directory of one run, and restores from it: a path, ``s3://``, ``gs://``, ``az://`` or a Storage.

    **Every rank must make one, and call its methods, in the same order.** State is any tree of JAX arrays, NumPy
    arrays, torch tensors and JSON values; see docs/checkpoint.md.

    ``every``: ``maybe_save`` saves at multiples of so many steps. ``every_minutes``: also so often, by rank 0's clock.
    ``keep_last``, ``keep_every``, ``keep_best``: keep the last steps (default: all), multiples, and the best by a
    metric, ``("loss", "min", 2)``. ``keep``: one policy or several instead (docs/checkpoint-items.md).
    ``items``: for keys at the top of the state, policies that keep only this part of other steps.
    ``memory_every``: at multiples of so many steps, ``maybe_save`` also keeps the state in the memory of two hosts.
    ``restore`` uses it if at most one host is lost (docs/checkpoint-memory.md).
    ``integrity``: ``xxh3-128`` or ``blake3``. ``timeout``: for a complete save, in seconds.
    ``memory``: the most bytes for copies; if a rank's part is larger, ``save`` blocks until some of it is written.
    ``on_sigterm``: after a SIGTERM on any rank, all ranks save at the same next ``maybe_save``, and exit with code 143.
    ``take_over``: take the run from a job that seems to be alive; that job then gets Fenced.
    ``read_only``: open the run for restores only, while another job may write.
    ``from_main``, ``per_rank``: globs of leaves that differ over the ranks on purpose: save rank 0's, or each rank's.
    ``compression``: ``"zstd"``, for links that are slower than Zstandard (docs/storage.md).
    """

    def __init__(
        self,
        where: str | os.PathLike[str] | Storage,
        world: World | None = None,
        *,
        every: int | None = None,
        every_minutes: float | None = None,
        memory_every: int | None = None,
        keep_last: int | None = None,
        keep_every: int | None = None,
        keep_best: tuple[str, Literal["min", "max"], int] | None = None,
        keep: retention_policy.Keep | Iterable[retention_policy.Keep] | None = None,
        items: Mapping[str, retention_policy.Keep | Iterable[retention_policy.Keep]] | None = None,
        integrity: str = "xxh3-128",
        memory: int | None = None,
        timeout: float = 1800.0,
        on_sigterm: bool = True,
        take_over: bool = False,
        read_only: bool = False,
        per_rank: Iterable[str] = (),
        from_main: Iterable[str] = (),
        compression: Literal["zstd"] | None = None,
    ) -> None:
        if on_sigterm and not read_only:
            sigterm.refuse_other_handlers(_WHO)
        self._world = world = world or current()
        self._storage = open_storage(where)
        self._cadence, self._timer = StepCadence(every), MinuteTimer(every_minutes, time.monotonic())
        kept_in_memory = StepCadence(None if read_only else memory_every, "memory_every")
        policy = retention_policy.RetentionPolicy(keep_last=keep_last, keep_every=keep_every, keep_best=keep_best)
        rules = retention_rules(policy, keep, items)
        self._choices = RankChoices(glob_tuple(per_rank, name="per_rank"), glob_tuple(from_main, name="from_main"))
        self._items, packs = tuple(sorted(rules.items)), check_compression(compression)
        settings = SaveSettings(integrity, memory, timeout, choices=self._choices, items=self._items, compresses=packs)
        said = {"every": every, "integrity": integrity, "items": list(self._items), "compression": compression}
        world.agree({**said, "memory_every": memory_every, **self._choices.as_json}, name="checkpointer")
        self._read_only = read_only
        self._entry = RunEntry("") if read_only else enter_run(self._storage, world, rules, take_over=take_over)
        self._retention = self._entry.retention
        self._saver = RunSaver(self._storage, world, settings, nonce=self._entry.nonce, hooks=self._retention)
        self._memory = open_tier(self._storage, world, kept_in_memory, settings, run_entry=self._entry)
        self._undo_end = world.listener.before_end(self.wait)
        self._preemption = preemption.preemption_saves_of(world)
        self._undo_sigterm: Callable[[], object] = lambda: None
        self._seen: tuple[int, object, Any, Mapping[str, float]] | None = None
        self._saved: int | None = None
        self._handle: SaveHandle | None = None
        self._position = TrainingPosition()
        self._gated = self._prepared = self._closed = False
        if not read_only:
            self._attend_to_notices(on_sigterm=on_sigterm)
        sigterm.note_saver()

    def restore(
        self,
        like: T,
        *,
        step: int | None = None,
        fallback: bool = False,
        rename: Rename | None = None,
        allow_missing: str | Iterable[str] = (),
        allow_unexpected: str | Iterable[str] = (),
        cast: bool = False,
    ) -> Restored[T] | None:
        """Return ``(state, step)`` of the newest step, or of ``step``; None if there is none. **Every rank must call.**

        ``like`` gives structure, shapes, dtypes, shardings and devices, which may differ from those of the save. torch
        tensors and NumPy arrays are filled in place, JAX arrays are made new. Every byte is verified.
        ``fallback``: if the step is damaged, restore the newest undamaged step instead of raising Damaged.
        ``rename``, ``allow_missing``, ``allow_unexpected``: as for ``allranks.load``. ``cast``: floats take the dtype
        of ``like``. The result's ``notes`` list what was allowed.

        Raises DoesNotFit with all differences. Raises Damaged, which names file, leaf and bytes; the tensors of
        ``like`` may then be filled in part. A restore alone changes nothing in the run. If the training continues from
        the restored step, the next save removes later steps. If it continues from a later step, the restore was only a
        read.
        """
        missing = glob_tuple(allow_missing, name="allow_missing")
        left = glob_tuple(allow_unexpected, name="allow_unexpected")
        settings = RestoreSettings(self._choices, match.RestoreOptions(rename, missing, left, cast), self._memory)
        self.wait()
        unsaved = self._seen is not None and self._seen[0] != self._saved
        overwrites = unsaved and share_memory(like, self._seen[1] if self._seen else None, self._world)
        try:
            with progress.inside("restore", self._storage.url):
                restored = restore(self._storage, self._world, like, step=step, fallback=fallback, settings=settings)
        except (DoesNotFit, NotThere, NewerFormat):
            raise
        except AllranksError:
            self._seen = None if overwrites else self._seen
            raise
        if restored is not None:
            self._seen = None if overwrites else self._seen
            self._position.note_restore(restored[1], dict(restored.metrics), is_stored=restored.on_storage)
            self._gated = False
            if restored.on_storage:
                progress.saved = restored[1]
                agent.load().report("saved", step=restored[1])
        return restored

    def resume_gate(
        self,
        first: Mapping[str, Any],
        *,
        within: float = 0.1,
        recorded: Mapping[str, float] | None = None,
        report: LoadedWeights | None = None,
    ) -> None:
        """Stop the job if the first metrics after a resume differ from the saved ones. **Every rank must call.**

        ``first``: metrics with names that were passed to ``save``. Their mean over the ranks may differ from the
        recorded value by the fraction ``within``. Raises NotResumed on every rank, with likely reasons. Only the first
        call after ``restore`` compares; other calls do nothing. After ``allranks.load``, pass its ``report``, and as
        ``recorded`` the values that the publisher of the weights states.
        """
        saved = self._position.take_recorded_metrics()
        if recorded is not None and not self._gated:
            saved = recorded
        if saved is not None:
            self._gated = True
            step = self._position.resumed
            check_first_metrics(first, saved, tolerance=within, world=self._world, loaded=report, step=step)

    def maybe_save(
        self, step: int, state: object, *, extra: Any = None, metrics: Mapping[str, Any] | None = None
    ) -> SaveHandle | None:
        """Save if a save is due. **Every rank must call**, after every step. ``step``: the number of steps done.

        Returns the handle of the save; None if no save was due. Raises SaveFailed if the last save failed (the next
        call works again). Raises SystemExit after SIGTERM, when everything is saved.
        """
        self._refuse_to_write()
        progress.step = step
        before = self._advance_to(step)
        self._saver.note_step(step)
        self._seen = step, state, extra, metrics or {}
        notice = self._member.begin_exit_call()
        if self._preemption.save_if_exiting(self._member, notice):
            return None
        due = (notice is not None or self._cadence.is_save_due(step, previous_step=before)) and step != self._saved
        handle = self._start_save(step, state, extra=extra, metrics=metrics) if due else None
        if not due and not self._prepared:
            self._saver.allocate_copies(state)
        self._prepared = True
        if self._memory.is_save_due(step, previous_step=before):
            self._memory.save_to_memory(self._save_order(step, extra, metrics, in_memory=True), state)
        if self._world.is_main and self._timer.is_due_next(time.monotonic()):
            self.request("save", f"{self._timer.minutes:g} minutes")
        return handle

    def save(
        self,
        step: int,
        state: object,
        *,
        extra: Any = None,
        metrics: Mapping[str, Any] | None = None,
        block: bool = False,
    ) -> SaveHandle:
        """Save now, and return when the program may change or donate the state. **Every rank must call.**

        First waits for the save before. The rest happens in the background: the handle's ``wait()`` waits for its end.
        ``block``: return at the end of the save.
        ``extra``: JSON (a data loader's state), equal on all ranks. A value in it with a method ``gathered()``, which
        every rank calls, is replaced by the result.
        ``metrics``: rank 0's are saved.

        Raises on every rank, and writes nothing: Mismatch if ranks differ in step, tree or bytes that they hold
        together; CannotStore; StepExists. Raises SaveFailed if the save before failed; SystemExit after SIGTERM, when
        all is saved.
        """
        self._refuse_to_write()
        notice = self._member.begin_exit_call()
        if not self._preemption.is_exit_notice(notice):
            return self._start_save(step, state, extra=extra, metrics=metrics, block=block)
        self._seen = step, state, extra, metrics or {}
        self._preemption.save_if_exiting(self._member, notice)  # it returns if another Checkpointer must still save
        return self._handle or self._start_save(step, state, extra=extra, metrics=metrics, block=block)

    def _start_save(
        self, step: int, state: object, *, extra: Any, metrics: Mapping[str, Any] | None, block: bool = False
    ) -> SaveHandle:
        last = self._position.last
        self._advance_to(step)
        order = self._save_order(step, extra, metrics, block=block)
        self._timer.saved = time.monotonic()
        progress.step = step
        try:
            with progress.inside("save", f"step {step}"):
                handle = self._handle = self._saver.start_save(order, state)
        except AllranksError:
            self._position.last = last  # a refused step is not one that the training has reached
            raise
        self._saved = step
        if self._seen is not None and self._seen[0] != step:
            self._seen = None  # the training has reached another step since maybe_save saw it
        return handle

    def _save_order(
        self, step: int, extra: Any, metrics: Any, *, block: bool = False, in_memory: bool = False
    ) -> SaveOrder:
        refused, retention = None, self._retention
        try:
            self._position.report_branch(*([] if retention is None else [retention.give_up_after]), self._saver.rewind)
            refused = reason_to_refuse(step, None if in_memory else retention, url=self._storage.url)
        except StorageError as error:
            refused = error
        replace = refused is None and (in_memory or (retention is not None and retention.is_given_up(step)))
        return SaveOrder(step, extra, metrics, replace=replace, wait=block, refused=refused)

    def request(self, kind: Kind, why: str) -> None:
        """Make all ranks save (``save``), or save and exit (``leave``), at the same next ``maybe_save`` or ``save``.

        Call it on any rank, in any thread; it returns at once. For a notice of preemption that is not SIGTERM.
        """
        self._refuse_to_write()
        self._member.notices.raise_notice(kind, why)

    def wait(self) -> None:
        """Wait for the running save, if there is one. Raises its error."""
        with progress.inside("save", "the running one"):
            self._saver.wait_for_save()
            self._memory.wait_for_save()

    def steps(self) -> tuple[int, ...]:
        """Return the saved steps that are complete according to their manifests. Any rank may call it alone.

        The result may contain a step that rank 0 is about to remove.
        """
        return inventory.complete_steps(self._storage)

    def hold(self, step: int | None = None, *, minutes: float = 60.0) -> AbstractContextManager[int]:
        """Keep a step (default: the newest) from being removed while a ``with`` block runs; yields its number.

        Use it in a reader beside the job that writes. Any rank may call it alone. It writes one small file into the
        run, and expires after ``minutes``, or when the process ends on the machine of the writer. Raises NotThere if
        nothing is saved, StepRemoved if the step no longer exists.

        Examples:
            >>> with reader.hold() as step:
            ...     state, _ = reader.restore(like, step=step)
        """
        return hold_step(self._storage, step, minutes=minutes)

    def close(self, *, items: str | Iterable[str] | None = None) -> None:
        """Save the last state that ``maybe_save`` saw, unless it is saved; wait for it, and release the run.

        ``items``: keep only these items of the last step (parameters, at the end of a training). **Every rank must
        call.** A second call does nothing. Raises SaveFailed if the last state could not be saved, AllranksError for
        unknown items.
        """
        if self._closed:
            return
        wanted = check_known(glob_tuple(items or (), name="items"), self._items)
        try:
            if not self._read_only:
                self._member.notices.arrived(self._member.calls + 1)  # to leave after the last call means to leave here
            self._save_last()
            if wanted and self._saved is not None:
                step, retention = self._saved, self._retention
                self._world.on_main(lambda: None if retention is None else retention.reduce_to_items(step, wanted))
        finally:
            self._release_run()

    def __enter__(self) -> Checkpointer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close. After an exception, only wait for the running save, because the ranks may have diverged."""
        if kind is None:
            self.close()
        elif isinstance(error, Exception) and self._preemption.save_after_error(error):
            raise SystemExit(PREEMPTED)
        elif not self._closed:
            try:
                self._saver.wait_for_save()
            except AllranksError as failed:
                error.add_note(f"and before: {failed}") if error is not None else None
            finally:
                self._release_run()

    def _attend_to_notices(self, *, on_sigterm: bool) -> None:
        """Receive notices, on which all ranks act at the same call. SIGTERM is one, too. **Every rank must call.**"""
        notices = self._preemption.notices_for_member(self._world)
        self._member = preemption.PreemptionMember(
            notices,
            seen=lambda: self._seen[0] if self._seen is not None else self._saved,
            saved=lambda: self._saved,
            save_last=self._save_last,
            release=self._release_run,
            answers=on_sigterm,
        )
        self._preemption.add_member(self._member)
        if on_sigterm:
            self._undo_sigterm = sigterm.handle_with(lambda: notices.raise_notice("leave", "SIGTERM"), who=_WHO)

    def _save_last(self) -> None:
        """Save the last state that was seen, unless it is saved. A failed save is tried once more."""
        try:
            self._saver.wait_for_save()
        except SaveFailed as error:
            if self._seen is None:
                raise
            log("%s\nallranks: step %d is saved instead.", error, self._seen[0], level=40)
            self._saved = None
        if self._seen is not None and self._seen[0] != self._saved:
            step, state, extra, metrics = self._seen
            self._start_save(step, state, extra=extra, metrics=metrics, block=True)

    def _release_run(self) -> None:
        self._closed = True
        self._seen = None
        self._saver.stop_allocation()
        self._undo_end()
        self._undo_sigterm()
        if not self._read_only:
            self._preemption.remove_member(self._member)
        self._memory.close(newest_saved_step=self._saver.committed)
        self._entry.release_run(self._storage)

    def _refuse_to_write(self) -> None:
        if self._closed or self._read_only:
            why = "closed" if self._closed else "read-only"
            raise AllranksError(
                f"rank {self._world.rank}: cannot save: the Checkpointer of {self._storage.url} is {why}."
            )

    def _advance_to(self, step: int) -> int | None:
        """Note that the training is at ``step``; return the step before. A restored step counts as saved."""
        if type(step) is not int:
            return None
        before = self._position.advance_to(step)
        if self._position.has_branched and before == self._position.resumed:
            self._saved = before if self._position.is_stored else None
        return before
