"""What a user sees of saves: when they happen, which are kept, what comes back, and what is refused; a world of one."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from allranks.checkpoint import checkpointer
from allranks.checkpoint.cadence import MinuteTimer
from allranks.checkpoint.checkpointer import Checkpointer
from allranks.errors import AllranksError, CannotStore, Damaged, Fenced, NotThere, SaveFailed, StepExists
from allranks.storage import MemoryStorage
from allranks.world.detect import single_world


@pytest.fixture
def disk() -> MemoryStorage:
    return MemoryStorage()


def opened(disk: MemoryStorage, **settings: Any) -> Checkpointer:
    """A new job on this disk."""
    return Checkpointer(disk.new_process(), single_world(), **settings)


def state_at(step: int) -> dict[str, Any]:
    return {"weights": np.full((4, 3), step, np.float32), "name": f"at {step}"}


def train(ckpt: Checkpointer, first: int, last: int) -> list[int]:
    """Steps ``first`` to ``last``; return those at which a save began."""
    return [step for step in range(first, last + 1) if ckpt.maybe_save(step, state_at(step)) is not None]


def manifests_put(ckpt: Checkpointer) -> list[str]:
    storage = ckpt._storage
    assert isinstance(storage, MemoryStorage)
    return [path for operation, path in storage.log if operation == "put" and path.endswith("manifest.json")]


def test_saves_are_due_at_the_multiples_of_every_and_once_at_the_end(disk: MemoryStorage) -> None:
    """Every third step, and the last one, which is none of them; close() a second time does nothing."""
    ckpt = opened(disk, every=3)
    assert train(ckpt, 1, 10) == [3, 6, 9]
    ckpt.close()
    ckpt.close()
    assert ckpt.steps() == (3, 6, 9, 10)
    assert manifests_put(ckpt) == [f"checkpoint-{step}/manifest.json" for step in (3, 6, 9, 10)]


def test_the_last_step_is_saved_once_where_it_was_due(disk: MemoryStorage) -> None:
    """A cadence that ends with the training leaves close() nothing to save."""
    ckpt = opened(disk, every=5)
    train(ckpt, 1, 10)
    ckpt.close()
    assert manifests_put(ckpt) == ["checkpoint-5/manifest.json", "checkpoint-10/manifest.json"]


def test_a_step_that_jumps_over_a_multiple_is_saved(disk: MemoryStorage) -> None:
    """Steps are counted by whoever counts them: 4, 8, 12 pass the multiples of 5 at 8 and 12."""
    ckpt = opened(disk, every=5)
    assert [ckpt.maybe_save(step, state_at(step)) is not None for step in (4, 8, 9, 12)] == [False, True, False, True]
    ckpt.close()


def test_a_step_that_the_program_saved_itself_is_not_saved_again(disk: MemoryStorage) -> None:
    """A save() before a maybe_save() that is due, and before close()."""
    ckpt = opened(disk, every=5)
    ckpt.save(5, state_at(5))
    assert ckpt.maybe_save(5, state_at(5)) is None
    ckpt.close()
    assert ckpt.steps() == (5,)


def test_nothing_seen_is_nothing_saved(disk: MemoryStorage) -> None:
    """close() after no step at all, and after a restore without a step, saves nothing."""
    opened(disk).close()
    ckpt = opened(disk)
    ckpt.save(7, state_at(7), block=True)
    ckpt.close()
    again = opened(disk)
    assert again.restore(state_at(0)) is not None
    again.close()
    assert manifests_put(again) == []


def test_an_exception_in_the_block_saves_nothing_more(disk: MemoryStorage) -> None:
    """The save that goes on is waited for, the state that was seen last is not saved; the exception is the user's."""
    ckpt = opened(disk, every=2)

    def fail() -> None:
        with ckpt:
            train(ckpt, 1, 3)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert ckpt.steps() == (2,)
    with opened(disk, every=2) as ckpt:
        assert ckpt.restore(state_at(0)) is not None
        train(ckpt, 3, 3)
    assert ckpt.steps() == (2, 3)


def test_a_closed_checkpointer_says_so(disk: MemoryStorage) -> None:
    """Neither save nor maybe_save is forgotten in silence after close()."""
    ckpt = opened(disk)
    ckpt.close()
    for save in (ckpt.save, ckpt.maybe_save):
        with pytest.raises(AllranksError, match="the Checkpointer of memory is closed"):
            save(1, state_at(1))


def test_minutes_are_counted_from_the_last_save(disk: MemoryStorage, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten minutes after the last one, whoever asked for that; by a clock that only rank 0 reads."""
    now = [1000.0]
    monkeypatch.setattr(checkpointer, "time", SimpleNamespace(monotonic=lambda: now[0]))
    ckpt = opened(disk, every_minutes=10)

    def at(minutes: float, step: int) -> bool:
        now[0] = 1000 + 60 * minutes
        return ckpt.maybe_save(step, state_at(step)) is not None

    # A notice for all ranks may take effect one step later.
    assert not at(9, 1)
    assert at(10.1, 2) or at(10.2, 3)
    assert not at(19, 4)
    assert at(20.4, 5) or at(20.5, 6)
    ckpt.close()


@pytest.mark.parametrize(("step", "minutes", "apart"), [(1.0, 1 / 60, 1.0), (0.5, 1 / 60, 1.0), (7.0, 1 / 6, 14.0)])
def test_saves_by_the_clock_are_not_a_step_late(step: float, minutes: float, apart: float) -> None:
    """What ranks agree on takes effect at the next call: so it is asked for at the call before. Never too early."""
    timer, now, asked, saved = MinuteTimer(minutes, 0.0), 0.0, False, []
    for _ in range(20):
        now += step
        if asked:
            saved.append(now)
            timer.saved = now
        asked = timer.is_due_next(now)
    assert {b - a for a, b in itertools.pairwise(saved)} == {apart}


def test_a_wish_is_a_save_at_one_of_the_next_steps(disk: MemoryStorage) -> None:
    """From any thread, at any time: to save, or to save and leave with exit code 143; nothing is saved twice then."""
    ckpt = opened(disk)
    asks = threading.Thread(target=ckpt.request, args=("save", "somebody asked"))
    asks.start()
    asks.join()
    saved = train(ckpt, 1, 3)
    assert len(saved) == 1
    ckpt.request("leave", "maintenance")
    with pytest.raises(SystemExit) as left:
        train(ckpt, 4, 9)
    assert left.value.code == 143
    assert len(ckpt.steps()) == 2
    assert ckpt.steps()[-1] in (4, 5)
    ckpt.close()
    again = opened(disk).restore(state_at(0))
    assert again is not None
    assert again[0]["name"] == f"at {again[1]}"


def test_what_the_policy_keeps_is_what_is_left(disk: MemoryStorage) -> None:
    """The last two, every tenth and the best by metric, over several jobs; no file of another step remains."""
    loss = {1: 9, 2: 0.5, 5: 3, 10: 3, 11: 4, 15: 2, 20: 8, 21: 8, 22: float("nan"), 23: 8}
    policy: dict[str, Any] = {"keep_last": 2, "keep_every": 10, "keep_best": ("loss", "min", 1)}
    for job in ([1, 2, 5, 10, 11], [15, 20, 21, 22, 23]):
        ckpt = opened(disk, **policy)
        for step in job:
            ckpt.save(step, state_at(step), metrics={"loss": loss[step]}, block=True)
        ckpt.close()
    assert ckpt.steps() == (2, 10, 20, 22, 23)
    folders = {path.split("/")[0] for path in disk.new_process().file_contents()} - {"fence"}
    assert folders == {f"checkpoint-{step}" for step in (2, 10, 20, 22, 23)}


def test_extra_and_metrics_come_back(disk: MemoryStorage) -> None:
    """With the state and the step, as what they were: also floats that are no numbers, and empty containers."""
    extra = {"data": {"epoch": 3, "seen": [1, 2], "rate": float("inf")}, "none": None, "empty": {}, "float": 1.5}
    ckpt = opened(disk)
    ckpt.save(4, state_at(4), extra=extra, metrics={"loss": np.float32(0.25), "best": 1}, block=True)
    restored = ckpt.restore(state_at(0))
    assert restored is not None
    state, step = restored
    assert (step, state["name"]) == (4, "at 4")
    assert (state["weights"] == 4).all()
    assert restored.extra == extra
    assert restored.metrics == {"loss": 0.25, "best": 1.0}


def test_the_documented_loop_begins_goes_on_and_ends(disk: MemoryStorage) -> None:
    """``restore(like=state) or (state, 0)``: three jobs of one training, of which the last has nothing to do."""
    begun = []
    for last in (4, 9, 9):
        ckpt = opened(disk, every=2)
        state, step = ckpt.restore(like=state_at(0)) or (state_at(0), 0)
        begun.append((step, int(state["weights"][0, 0])))
        train(ckpt, step + 1, last)
        ckpt.close()
    assert begun == [(0, 0), (4, 4), (9, 9)]


def test_a_step_that_is_not_there_is_refused(disk: MemoryStorage) -> None:
    """It says which there are."""
    ckpt = opened(disk)
    assert ckpt.restore(state_at(0)) is None
    for step in (3, 6):
        ckpt.save(step, state_at(step), block=True)
    with pytest.raises(NotThere, match="memory has no step 5: expected one of 6, 3"):
        ckpt.restore(state_at(0), step=5)


def test_a_step_that_exists_is_refused(disk: MemoryStorage) -> None:
    """By this job or by an earlier one; what there is stays as it is, and the next step can be saved."""
    ckpt = opened(disk)
    ckpt.save(3, state_at(3), block=True)
    before = disk.new_process().file_contents()
    with pytest.raises(StepExists, match="memory already has step 3"):
        ckpt.save(3, state_at(8), block=True)
    ckpt.close()
    again = opened(disk)
    with pytest.raises(StepExists, match="Save another step"):
        again.save(3, state_at(8))
    assert {path: disk.new_process().file_contents()[path] for path in before if not path.startswith("fence")} == {
        path: data for path, data in before.items() if not path.startswith("fence")
    }
    again.save(4, state_at(4), block=True)
    assert again.steps() == (3, 4)


@pytest.mark.parametrize("step", [-1, 2.0, True, "3", None], ids=repr)
def test_a_step_is_a_number_from_0_on(disk: MemoryStorage, step: Any) -> None:
    """Nothing is written for anything else."""
    ckpt = opened(disk)
    with pytest.raises(AllranksError, match="expected an int from 0 on"):
        ckpt.save(step, state_at(0))
    assert not any(path.startswith("checkpoint") for path in disk.new_process().file_contents())


def test_a_branch_that_is_given_up_is_saved_over(disk: MemoryStorage) -> None:
    """A resume at 100 of 300 gives up 200 and 300: the first save of the new branch replaces the one, removes both."""
    ckpt = opened(disk)
    for step in (100, 200, 300):
        ckpt.save(step, state_at(step), block=True)
    ckpt.close()
    again = opened(disk)
    assert again.restore(state_at(0), step=100) is not None
    assert again.steps() == (100, 200, 300), "a restore alone removes nothing"
    again.save(200, state_at(7), block=True)
    assert again.steps() == (100, 200)
    with pytest.raises(StepExists):
        again.save(200, state_at(8), block=True)
    files = [path for path in disk.new_process().file_contents() if path.startswith("checkpoint-200")]
    assert len(files) == 2, files
    newest = opened(disk).restore(state_at(0))
    assert newest is not None
    assert (newest[1], newest[0]["name"]) == (200, "at 7")


def test_the_first_save_after_a_resume_is_never_the_one_that_is_removed(disk: MemoryStorage) -> None:
    """keep_last counts the new branch, not the higher steps of the one that was given up."""
    ckpt = opened(disk)
    for step in (100, 200, 300):
        ckpt.save(step, state_at(step), block=True)
    ckpt.close()
    again = opened(disk, keep_last=2)
    again.restore(state_at(0), step=100)
    again.save(150, state_at(150), block=True)
    assert again.steps() == (100, 150)


@pytest.mark.parametrize("maybe", [True, False])
def test_looking_at_an_old_step_is_not_going_on_from_it(disk: MemoryStorage, maybe: bool) -> None:
    """The training goes on after it, and nothing is given up; where it goes on from the old step, its branch is."""
    ckpt = opened(disk, every=10)
    save = ckpt.maybe_save if maybe else ckpt.save
    for step in (10, 20, 30):
        save(step, state_at(step))
    looked = ckpt.restore(state_at(0), step=10)
    assert looked is not None
    assert looked[0]["name"] == "at 10"
    save(40, state_at(40))
    ckpt.wait()
    assert ckpt.steps() == (10, 20, 30, 40)
    ckpt.restore(state_at(0), step=20)
    ckpt.restore(state_at(0), step=10)
    ckpt.maybe_save(21, state_at(21))
    save(30, state_at(31))
    ckpt.wait()
    assert ckpt.steps() == (10, 20, 30)
    newest = ckpt.restore(state_at(0))
    assert newest is not None
    assert newest[0]["name"] == "at 31"


def test_a_step_that_was_refused_is_none_that_the_training_has_come_to(disk: MemoryStorage) -> None:
    """So it can go back before it and save it anew."""
    with opened(disk) as ckpt:
        for step in (6, 7):
            ckpt.save(step, state_at(step), block=True)
    with opened(disk) as again:
        again.restore(state_at(0))
        with pytest.raises(StepExists):
            again.save(7, state_at(7))
        again.restore(state_at(0), step=6)
        again.save(7, state_at(8), block=True)
        newest = again.restore(state_at(0))
        assert newest is not None
        assert (newest[1], newest[0]["name"]) == (7, "at 8")


@pytest.mark.parametrize("into", ["a copy", "the state itself"])
def test_a_state_that_was_only_seen_is_saved_in_the_end_unless_it_is_overwritten(
    disk: MemoryStorage, into: str
) -> None:
    ckpt = opened(disk, every=10)
    states = {step: state_at(step) for step in (10, 15)}
    for step, state in states.items():
        ckpt.maybe_save(step, state)
    with pytest.raises(NotThere):
        ckpt.restore(states[15], step=7)
    ckpt.restore(states[15] if into == "the state itself" else state_at(0), step=10)
    ckpt.close()
    assert opened(disk).steps() == ((10,) if into == "the state itself" else (10, 15))


def test_the_best_is_not_removed_while_its_metric_has_not_come(
    disk: MemoryStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A name that is misspelt removes nothing, and each save says so."""
    said: list[str] = []
    monkeypatch.setattr("allranks.checkpoint.retention.log", lambda text, *values, **_: said.append(text % values))
    with opened(disk, keep_last=1, keep_best=("val_los", "min", 2)) as ckpt:
        for step, loss in enumerate((3.0, 1.0, 2.0), 1):
            ckpt.save(step, state_at(step), metrics={"val_loss": loss}, block=True)
        assert ckpt.steps() == (1, 2, 3)
    assert len(said) == 3
    assert "no step has the metric 'val_los', so no step is removed. Step 3 has the metrics 'val_loss'" in said[-1]
    with opened(disk, keep_last=1, keep_best=("val_loss", "min", 1)) as ckpt:
        ckpt.save(4, state_at(4), block=True)
        assert ckpt.steps() == (2, 4)


def test_a_branch_stays_until_another_step_is_whole(disk: MemoryStorage) -> None:
    """A save that fails after the resume leaves the old branch as it was."""
    ckpt = opened(disk)
    for step in (1, 2):
        ckpt.save(step, state_at(step), block=True)
    ckpt.close()
    process = disk.new_process()
    again = Checkpointer(process, single_world())
    again.restore(state_at(0), step=1)
    process.fail_operation("block", "checkpoint-*")
    with pytest.raises(SaveFailed):
        again.save(2, state_at(9), block=True)
    assert again.steps() == (1, 2)
    restored = again.restore(state_at(0), step=2)
    assert restored is not None
    assert restored[0]["name"] == "at 2"


def test_a_failed_save_is_told_once_and_the_end_is_saved(disk: MemoryStorage) -> None:
    """The call after a save that failed raises it; the one after that goes on, and close() saves the last state."""
    process = disk.new_process()
    ckpt = Checkpointer(process, single_world(), every=1)
    process.fail_operation("finish", "checkpoint-1/*")
    handle = ckpt.maybe_save(1, state_at(1))
    assert handle is not None
    with pytest.raises(SaveFailed, match=r"save of step 1 stopped: rank 0: StorageError: cannot .* Input/output"):
        handle.wait(60)
    with pytest.raises(SaveFailed, match="save of step 1 stopped"):
        ckpt.maybe_save(2, state_at(2))
    ckpt.close()
    assert ckpt.steps() == (2,)
    assert not any(path.startswith("checkpoint-1/") for path in process.file_contents())


@pytest.mark.parametrize("last", [4, 5])
def test_close_saves_the_last_state_even_if_the_save_before_failed(disk: MemoryStorage, last: int) -> None:
    """Of an earlier step or of this very one: what failed once gets another chance, and nothing is lost by the end."""
    process = disk.new_process()
    ckpt = Checkpointer(process, single_world(), every=4)
    process.fail_operation("put", "checkpoint-4/manifest.json")
    train(ckpt, 1, last)
    ckpt.close()
    assert ckpt.steps() == (last,)


def test_close_says_that_the_last_state_could_not_be_saved(disk: MemoryStorage) -> None:
    """A disk that fails for good ends in SaveFailed, and the run is given free."""
    process = disk.new_process()
    ckpt = Checkpointer(process, single_world(), every=1)
    process.fail_operation("create", "checkpoint-*", times=100)
    ckpt.maybe_save(1, state_at(1))
    with pytest.raises(SaveFailed, match="save of step 1 stopped"):
        ckpt.close()
    opened(disk).close()


UNSTORABLE: dict[str, tuple[Callable[[], dict[str, Any]], str]] = {
    "an object in the state": (lambda: {"state": {"a": {"f": object()}}}, "'a/f' is object"),
    "a function in the state": (lambda: {"state": {"act": np.sin}}, "'act' is a numpy.ufunc"),
    "a long double": (lambda: {"state": {"a": np.zeros(2, np.longdouble)}}, "'a' is an array of float128"),
    "text that is none": (lambda: {"state": {"a": "\ud800"}}, "not Unicode text"),
    "a key that is no text": (lambda: {"state": {"\ud800": 1}}, "not Unicode text"),
    "an endless int": (lambda: {"state": {"a": 1 << 20_000}}, "a is a builtins.int"),
    "an object in extra": (lambda: {"extra": {"loader": object()}}, r"\(extra\)\['loader'\] is a builtins.object"),
    "a number for a key": (lambda: {"extra": {1: 2}}, r"\(extra\) has the key 1"),
    "an array in extra": (lambda: {"extra": np.zeros(2)}, "numpy.ndarray"),
    "a metric that is no number": (lambda: {"metrics": {"loss": "low"}}, "metric 'loss' is "),
    "a metric of many numbers": (lambda: {"metrics": {"loss": np.zeros(2)}}, "metric 'loss' is "),
}


@pytest.mark.parametrize("what", UNSTORABLE)
def test_what_cannot_be_stored_is_refused_before_a_byte_is_written(disk: MemoryStorage, what: str) -> None:
    """By name, from save() itself, though it is asynchronous; the next good save works."""
    ckpt = opened(disk)
    before = disk.new_process().file_contents()
    make, words = UNSTORABLE[what]
    given = {"state": state_at(1), **make()}
    with pytest.raises(CannotStore, match=words):
        ckpt.save(1, **given)
    assert disk.new_process().file_contents() == before
    ckpt.save(1, state_at(1), block=True)
    assert ckpt.steps() == (1,)


def test_a_save_waits_for_the_one_before(disk: MemoryStorage) -> None:
    """While step 1 is being written, save(2) does not return; then both are there, each with its own bytes."""
    may_write, writing = threading.Event(), threading.Event()

    def slow(operation: str, path: str) -> None:
        if operation == "block" and path.startswith("checkpoint-1/"):
            writing.set()
            assert may_write.wait(60)

    ckpt = Checkpointer(disk.new_process(before=slow), single_world())
    weights = np.ones(1000, np.float32)
    first = ckpt.save(1, {"w": weights})
    assert writing.wait(60)
    weights[:] = 2
    second = threading.Thread(target=ckpt.save, args=(2, {"w": weights}))
    second.start()
    second.join(0.1)
    assert second.is_alive()
    assert not first.done()
    may_write.set()
    second.join(60)
    ckpt.wait()
    for step in (1, 2):
        restored = ckpt.restore({"w": np.zeros(1000, np.float32)}, step=step)
        assert restored is not None
        assert (restored[0]["w"] == step).all()


def test_less_memory_than_the_state_makes_a_save_slower_and_no_less_right(disk: MemoryStorage) -> None:
    """Five blocks of state through a budget of one: what is mutated right after save() returned is not in the file."""
    ckpt = opened(disk, memory=1)
    weights = np.arange(5 << 21, dtype=np.float32)
    for step in (1, 2):
        handle = ckpt.save(step, {"w": weights, "odd": np.arange(3, dtype=np.int8)})
        weights += 1
        assert handle.wait(60).copied <= 8 << 20
    for step in (1, 2):
        restored = ckpt.restore({"w": np.zeros_like(weights), "odd": np.zeros(3, np.int8)}, step=step)
        assert restored is not None
        assert (restored[0]["w"] == np.arange(5 << 21, dtype=np.float32) + step - 1).all()


def test_a_program_that_adds_to_a_run_without_restoring_it_is_told_once(
    disk: MemoryStorage, caplog: pytest.LogCaptureFixture
) -> None:
    """Two programs may have the same folder by mistake."""
    with opened(disk) as first:
        first.save(3, state_at(3), block=True)
        first.save(5, state_at(5), block=True)
    assert "did not restore" not in caplog.text
    with opened(disk) as restored:
        restored.restore(state_at(0))
        restored.save(6, state_at(6), block=True)
    assert "did not restore" not in caplog.text
    with opened(disk) as other:
        other.save(50, state_at(50), block=True)
        other.save(51, state_at(51), block=True)
    assert caplog.text.count("step 50 is saved beside step 6, which was in") == 1
    assert caplog.text.count("was not restored") == 1


def test_a_damaged_newest_step_is_never_taken_in_silence(disk: MemoryStorage, caplog: pytest.LogCaptureFixture) -> None:
    """It raises and says what to do; with fallback it restores the step before, says so, and gives the newer one up."""
    ckpt = opened(disk)
    for step in (1, 2):
        ckpt.save(step, state_at(step), block=True)
    ckpt.close()
    [file] = [path for path in disk.new_process().file_contents() if path.startswith("checkpoint-2/rank")]
    disk.flip_bit(file, 4096)
    again = opened(disk)
    with pytest.raises(
        Damaged, match=r"of leaf 'weights', are not what was saved.*restore\(step=1\) restores the step before"
    ):
        again.restore(state_at(0))
    restored = again.restore(state_at(0), fallback=True)
    assert restored is not None
    assert restored[1] == 1
    assert (restored[0]["weights"] == 1).all()
    assert "falling back to step 1" in caplog.text
    again.save(2, state_at(5), block=True)
    newest = again.restore(state_at(0))
    assert newest is not None
    assert newest[0]["name"] == "at 5"


def test_a_job_whose_run_was_taken_over_harms_nothing(disk: MemoryStorage) -> None:
    """Its next save is refused, and the checkpoint that it had saved stays whole even if it lost the run meanwhile."""
    old = opened(disk, keep_last=1)
    taken: list[Checkpointer] = []

    def steal(operation: str, path: str) -> None:
        if operation == "list" and path == "fence" and len(old.steps()) == 2 and not taken:
            taken.append(opened(disk, take_over=True))

    storage = old._storage
    assert isinstance(storage, MemoryStorage)
    old.save(1, state_at(1), block=True)
    storage._before = steal
    old.save(2, state_at(2), block=True)
    assert len(taken) == 1, "taken over between the manifest and the retention"
    with pytest.raises((SaveFailed, Fenced), match="took over the run"):
        old.save(3, state_at(3), block=True)
    for step in taken[0].steps():
        restored = taken[0].restore(state_at(0), step=step)
        assert restored is not None
        assert (restored[0]["weights"] == step).all()
    assert 2 in taken[0].steps()


def test_a_run_may_be_read_beside_the_job_that_writes_it(disk: MemoryStorage) -> None:
    """A read-only one takes no fence, so the other goes on; and it saves nothing."""
    writer = opened(disk, every=2)
    train(writer, 1, 2)
    writer.wait()
    reader = opened(disk, read_only=True)
    restored = reader.restore(like=state_at(0))
    assert restored is not None
    assert restored[1] == 2
    with pytest.raises(AllranksError, match="is read-only"):
        reader.save(3, state_at(3))
    with pytest.raises(AllranksError, match="is read-only"):
        reader.maybe_save(4, state_at(4))
    reader.close()
    train(writer, 3, 4)
    writer.close()
    assert writer.steps() == (2, 4)
