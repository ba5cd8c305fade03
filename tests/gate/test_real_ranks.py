"""The gate with two real processes: every entrance to a collective, and faults without us and with us."""

from __future__ import annotations

import json
import sys
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import harness
import pytest

PROGRAMS = Path(__file__).parent / "programs"
EACH_FRAMEWORK = pytest.mark.parametrize(
    "framework", [pytest.param(name, marks=pytest.mark.needs(name)) for name in ("torch", "jax")]
)
# Each fault once; with the other framework it is the same, and in the soak.
FAULTS = [fault for fault in (("jax", "gather"), ("torch", "metric"), ("jax", "exception")) if find_spec(fault[0])]
ENTRANCES = {"torch": 35, "jax": 23}


EXPECTED: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "torch": (
        {"allowed": [[0.0, 1.0], 0, 2], "compiled": [1, 1], "after": [2.0, 2.0], "tensor": [0.0, 1.0, 2.0, 3.0]},
        {"received": [7.0, 7.0], "after": [2.0, 2.0], "tensor": [0.0, 1.0, 2.0, 3.0]},
    ),
    "jax": (
        {
            "allowed": [6.0, 6.0, "[1. 2.]", [0.0, 0.0, 0.0], "Array"],
            "traces": [],
            "after": [6.0, [0.0, 1.0, 2.0, 3.0]],
        },
        {"traces": [], "after": [6.0, [0.0, 1.0, 2.0, 3.0]]},
    ),
}


def results(program: str, *arguments: str, size: int = 2) -> list[dict[str, Any]]:
    """Run a program on real ranks; return what each printed after ``RESULT``, last."""
    job = harness.run(size, [str(PROGRAMS / program), *arguments])
    reports = [[line for line in rank.out.splitlines() if line.startswith("RESULT ")] for rank in job.ranks]
    assert all(reports), job
    return [json.loads(lines[0].removeprefix("RESULT ")) for lines in reports]


@EACH_FRAMEWORK
def test_every_entrance_to_a_collective_is_refused_on_one_rank(framework: str) -> None:
    """At once, naming the line; local work goes on as fast as ever, and afterwards the ranks are still in step."""
    main, other = results(f"{framework}_guard.py")
    refused = main.pop("refused")
    assert len(refused) == ENTRANCES[framework]
    for entrance, reports in refused.items():
        assert reports is not None, entrance
        assert f"at tests/gate/programs/{framework}_guard.py:" in reports, (entrance, reports)
        assert "needs every rank, but only rank 0 runs this code (opened at tests/gate/programs/" in reports, entrance
    expected = EXPECTED[framework]
    assert {name: main[name] for name in expected[0]} == expected[0]
    assert {name: other[name] for name in expected[1]} == expected[1]


@pytest.fixture(scope="module")
def without_us() -> dict[tuple[str, str], list[dict[str, Any]]]:
    """The faults without us, side by side: most of their time is waiting."""
    with ThreadPoolExecutor(len(FAULTS) or 1) as pool:
        return dict(zip(FAULTS, pool.map(lambda fault: results("reproductions.py", *fault), FAULTS), strict=True))


def each_framework(fault: str) -> pytest.MarkDecorator:
    """Parametrize by framework, those in the soak for which the fixture has not this fault."""
    others = {name: [] if (name, fault) in FAULTS else [pytest.mark.soak] for name in ("torch", "jax")}
    named = [pytest.param(name, marks=[pytest.mark.needs(name), *marks]) for name, marks in others.items()]
    return pytest.mark.parametrize("framework", named)


def seen(framework: str, fault: str, without_us: Any) -> list[dict[str, Any]]:
    return without_us.get((framework, fault)) or results("reproductions.py", framework, fault)


@each_framework("gather")
def test_a_gather_on_one_rank_hangs_without_us(framework: str, without_us: Any) -> None:
    assert seen(framework, "gather", without_us) == [{"hung": True}] * 2


@each_framework("metric")
def test_a_metric_logged_on_one_rank_makes_the_others_loss_wrong_without_us(framework: str, without_us: Any) -> None:
    """Rank 0's metric is paired with rank 1's loss, which comes out as 48 for 52; nobody notices."""
    main, other = seen(framework, "metric", without_us)
    assert other["loss"] == 48.0
    assert main != {"metric": 44.0, "loss": 52.0}


@pytest.mark.needs("jax")
def test_an_exception_on_one_rank_hangs_the_job_without_us(without_us: Any) -> None:
    """In JAX the process that raised waits at its exit, and the others wait for it in the collective."""
    assert without_us["jax", "exception"] == [{"hung": True}] * 2


@EACH_FRAMEWORK
def test_with_us_the_faults_are_errors_on_every_rank(framework: str, tmp_path: Path) -> None:
    """Gate before a gather, log of a sharded metric, exception on rank 0; and what comes afterwards is right."""
    main, other = results("reproductions.py", framework, "ours", str(tmp_path))
    for case in ("gather", "log"):
        assert main[case].startswith("CollectiveOnOneRank: rank 0: "), main
        assert "tests/gate/programs/reproductions.py:" in main[case]
        assert other[case].startswith("RemoteError: rank 1: on_main"), other
        assert "rank 0 raised CollectiveOnOneRank: rank 0: " in other[case]
    assert main["read"] == "FileNotFoundError: config.json"
    assert "rank 0 raised FileNotFoundError: config.json" in other["read"]
    for rank in (main, other):
        assert (rank["loss"], rank["printed"], rank["on_main"]) == (52.0, [None, 52.0], {"from": 0})
        assert rank["gathered"] == [[4.0] * 4, [7.0] * 4]
        assert rank["mismatch"].startswith("Mismatch: rank ")
        assert "rank 0: step 2 (tests/gate/programs/reproductions.py:" in rank["mismatch"]
    if framework == "torch":
        assert scalars(tmp_path) == [("metric", 0, 44.0), ("metric", 1, 52.0), ("metric", 2, 60.0)]


def scalars(folder: Path) -> list[tuple[str, int, float]]:
    """Read TensorBoard's event files; there must be one."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    assert len(list(folder.iterdir())) == 1
    events = EventAccumulator(str(folder))
    events.Reload()
    return [(tag, e.step, e.value) for tag in events.Tags()["scalars"] for e in events.Scalars(tag)]


@pytest.mark.needs("jax")
def test_in_a_jax_that_we_do_not_know_a_warning_says_what_is_left() -> None:
    """Private names gone, or there and without effect: the functions of multihost_utils are still refused."""
    command = [sys.executable, str(PROGRAMS / "jax_unknown.py")]
    job = harness.run_commands([([*command, how], harness.clean_environ()) for how in ("moved", "idle")])
    for rank in job.ranks:
        assert rank.code == 0, job
        assert "internals of jax" in rank.out
        assert "sync_global_devices" in rank.out
