"""Programs that do not know allranks, under ``allranks run``: their hangs are reported all the same."""

from __future__ import annotations

import re
import sys
import threading
from pathlib import Path

import harness
import pytest

from allranks import agent
from allranks.errors import KeyTimeout, StoreError
from allranks.hang.launched import LauncherListener, PolledStore
from allranks.launch.placement import Placement
from allranks.world.files import FileStore

PROGRAM = Path(__file__).parent / "programs" / "unmodified.py"


def run(*words: object, ranks: int = 2, options: tuple[object, ...] = ()) -> harness.Job:
    command = [sys.executable, "-m", "allranks", "run", "-n", ranks, "--timeout", 60, *options, *words]
    return harness.run_commands([([str(word) for word in command], harness.clean_environ())])


@pytest.mark.parametrize(
    ("framework", "fault"),
    [
        pytest.param("torch", "sleeps", marks=[pytest.mark.needs("torch"), pytest.mark.soak]),
        pytest.param("jax", "sleeps", marks=[pytest.mark.needs("jax"), pytest.mark.soak]),
        # The watch of init() takes the place of ours.
        pytest.param("torch", "joins_late", marks=[pytest.mark.needs("torch"), pytest.mark.soak]),
    ],
)
def test_a_hang_of_an_unmodified_script_is_reported_once(framework: str, fault: str) -> None:
    """Rank 1 at its line; then the job ends."""
    job = run(PROGRAM, framework, fault, options=("--hang-after", 2, "--on-hang", "end"))
    out = job.ranks[0].text
    assert job.codes == [75], job
    assert re.search(
        r"HANG: rank 0 waits for rank 1 \(host \S+\), since \d s: at \S*unmodified\.py:\d+ in sleeps", out
    ), job
    assert len(re.findall(r"allranks: HANG: rank 0 waits", out)) == 1, job


STEPS_60, ALL_2 = ("--hang-after", 60), ("--hang-after", 2)


@pytest.mark.parametrize(
    ("framework", "fault", "options", "rule"),
    [
        pytest.param(
            "jax",
            "evaluates",
            (*STEPS_60, "--hang-evaluation", 2),
            "limit for evaluation 2 s: --hang-evaluation",
            marks=pytest.mark.needs("jax"),
        ),
        *(
            pytest.param("torch", *case, marks=[pytest.mark.needs("torch"), pytest.mark.soak])
            for case in [
                ("evaluates", ALL_2, r"limit 2 s: --hang-after \(--hang-evaluation sets"),
                ("saves", (*STEPS_60, "--hang-checkpoint", 2), "limit for a checkpoint 2 s: --hang-checkpoint"),
                ("sleeps", (*STEPS_60, "--hang-first-step", 2), "limit for the first step 2 s: --hang-first-step"),
                (
                    "sleeps_after_a_step",
                    (*ALL_2, "--hang-first-step", 60, "--hang-evaluation", 60, "--hang-checkpoint", 60),
                    "limit for a training step 2 s: --hang-after",
                ),
            ]
        ),
    ],
)
def test_the_limit_of_the_stage_of_rank_1_holds(
    framework: str, fault: str, options: tuple[object, ...], rule: str
) -> None:
    """It is stuck there; the report names the limit and its option."""
    job = run(PROGRAM, framework, fault, options=(*options, "--on-hang", "end"))
    out = job.ranks[0].text
    assert job.codes == [75], job
    assert re.search(r"HANG: rank 0 waits for rank 1 \(host \S+\), since \d s: ", out), job
    assert re.search(rf"allranks:   {rule}", out), job


@pytest.mark.soak
@pytest.mark.needs("torch")
@pytest.mark.parametrize("stage", ["evaluation", "first-step", "checkpoint"])
def test_a_longer_limit_of_its_stage_is_waited_for(stage: str) -> None:
    """No report after the limit of a step."""
    fault = {"evaluation": "evaluates", "first-step": "sleeps", "checkpoint": "saves"}[stage]
    options = (*ALL_2, f"--hang-{stage}", 60, "--timeout", 12)
    job = run(PROGRAM, "torch", fault, options=options)
    assert job.codes == [124], job
    assert "HANG" not in job.ranks[0].text, job


@pytest.mark.soak
@pytest.mark.parametrize("others", [(), ("healthy",)])
@pytest.mark.parametrize(
    ("framework", "ranks"),
    [
        pytest.param("torch", 2, marks=pytest.mark.needs("torch")),
        pytest.param("torch", 4, marks=pytest.mark.needs("torch")),
        pytest.param("jax", 3, marks=pytest.mark.needs("jax")),
    ],
)
def test_a_slow_rank_is_named_at_the_end(framework: str, ranks: int, others: tuple[str, ...]) -> None:
    """Rank 1 takes longer for each step, of a job of a minute; a healthy one has no such line."""
    steps = 1500 if others else 450
    job = run(PROGRAM, framework, "slow", steps, *others, ranks=ranks, options=("--hang-after", 2, "--timeout", 100))
    out = job.ranks[0].text
    assert job.codes == [0], job
    said = re.findall(r"^SLOW: (.*) is late: in collectives it waits \d+% of the time, the other ranks \d+%", out, re.M)
    assert len(said) == (0 if others else 1), job
    assert all(re.fullmatch(r"rank 1 \(host \S+\)", one) for one in said), job


@pytest.mark.soak
@pytest.mark.needs("torch")
def test_hang_after_0_turns_the_watch_off() -> None:
    """Nothing is said until the time is over."""
    job = run(PROGRAM, "torch", "sleeps", options=("--hang-after", 0, "--timeout", 8))
    assert job.codes == [124], job
    assert "HANG" not in job.ranks[0].text, job


@pytest.mark.parametrize(("seconds", "wanted"), [("0", False), ("0.0", False), ("8", True), (None, True)])
def test_the_watch_is_on_by_default(seconds: str | None, wanted: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ALLRANKS_HANG_AFTER", raising=False)
    if seconds is not None:
        monkeypatch.setenv("ALLRANKS_HANG_AFTER", seconds)
    assert agent.load("allranks_agent_hang").is_wanted() is wanted


def test_a_store_in_a_folder_keeps_its_contract(tmp_path: Path) -> None:
    """Values are whole, one of many claims wins, counters count, keys go; without the folder it is an error."""
    store = FileStore(tmp_path / "store")
    (tmp_path / "store").mkdir()
    assert store.get("a/b") is None
    store.set("a/b", b"1")
    store.set("a/b", b"2")
    assert store.get("a/b") == store.wait("a/b", 0) == b"2"
    with pytest.raises(KeyTimeout):
        store.wait("a/c", 0.01)
    found: list[tuple[bytes, int]] = []

    def rush(number: int) -> None:
        found.append((store.claim("one/winner", str(number).encode()), store.add("count/all", 1)))

    threads = [threading.Thread(target=rush, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({winner for winner, _ in found}) == 1
    assert sorted(count for _, count in found) == list(range(1, 9))
    store.set("a/deep/c", b"3")
    assert store.list("a/") == {"a/b": b"2", "a/deep/c": b"3"}
    store.delete("a/b")
    store.delete("a/b")
    assert store.list("a/") == {"a/deep/c": b"3"}
    gone = FileStore(tmp_path / "gone")
    for use in (lambda: gone.set("a", b""), lambda: gone.claim("a/b", b""), lambda: gone.wait("a", 1)):
        with pytest.raises(StoreError, match="gone"):
            use()


def test_who_listens_is_woken_by_a_ring_and_by_the_end(tmp_path: Path) -> None:
    store = PolledStore(FileStore(tmp_path))
    listener, rung, calls = LauncherListener(store, 0, Placement(("a",), (2,))), threading.Event(), []

    def heard() -> None:
        calls.append(len(calls))
        if len(calls) == 2:
            rung.set()

    listener.on_wake(heard)  # at once
    listener.wake()
    assert rung.wait(harness.PATIENCE)
    listener.stop()
    assert calls == [0, 1]
