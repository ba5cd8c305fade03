"""Each judge on traces by hand: the fault, and its twin without."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from traces import Script

from allranks.rehearse.judge import all_findings, files, hosts, randomness, resume, topics
from allranks.rehearse.trace import UNWATCHED


def found(script: Script) -> list[tuple[str, int]]:
    return [(one.code, one.place.line) for one in all_findings(script.case())]


FILES: dict[str, tuple[Script, list[tuple[str, int]]]] = {
    "all write a checkpoint": (
        Script(2).file(0, "create", "m.pt", line=3).file(1, "create", "m.pt", line=3),
        [("AR101", 3)],
    ),
    "all write another file": (
        Script(2).file(0, "create", "m.json", line=3).file(1, "create", "m.json", line=3),
        [("AR102", 3)],
    ),
    "each writes its own": (Script(2).file(0, "create", "m0.pt").file(1, "create", "m1.pt"), []),
    "written, a barrier, written": (Script(2).file(0, "create", "m.pt").barrier().file(1, "create", "m.pt"), []),
    "files of other names": (
        Script(2)
        .file(0, "create", "a-17.pt", line=3, existed=False)
        .file(1, "create", "a-43.pt", line=3, existed=False),
        [("AR107", 3)],
    ),
    "files with the rank's number and others in their names": (
        Script(2)
        .file(0, "create", "dcp/__0_0.distcp", line=3, existed=False)
        .file(1, "create", "dcp/__1_0.distcp", line=3, existed=False),
        [],
    ),
    "a library's files of all ranks and of each": (
        Script(2)
        .file(0, "create", "c/model.pt", line=3, existed=False)
        .file(0, "create", "c/rng_0.pt", line=3, existed=False)
        .file(1, "create", "c/rng_1.pt", line=3, existed=False),
        [],
    ),
    "temporary files of other names": (
        Script(2)
        .file(0, "create", "17.pt", line=3, existed=False)
        .file(0, "rename", "17.pt", "0.pt", line=4)
        .file(1, "create", "43.pt", line=3, existed=False)
        .file(1, "rename", "43.pt", "1.pt", line=4),
        [],
    ),
    "read, changed and written back": (
        Script(2)
        .file(0, "read", "c", line=1)
        .file(0, "create", "c", line=2)
        .file(1, "read", "c", line=1)
        .file(1, "create", "c", line=2),
        [("AR110", 2)],
    ),
    "read without a barrier": (
        Script(2).file(0, "create", "v", line=2, existed=False).file(1, "read", "v", line=4),
        [("AR405", 4)],
    ),
    "renamed into place, read without a barrier": (
        Script(2)
        .file(0, "create", "v.tmp", line=2)
        .file(0, "rename", "v.tmp", "v", line=3)
        .file(1, "read", "v", line=4),
        [("AR405", 4)],
    ),
    "renamed into place, read where it may be missing": (
        Script(2)
        .file(0, "create", "v.tmp", line=2)
        .file(0, "rename", "v.tmp", "v", line=3)
        .file(1, "read", "v", line=4, caught=True),
        [],
    ),
    "written in place, read where it may be missing": (
        Script(2).file(0, "create", "v", line=2, existed=False).file(1, "read", "v", line=4, caught=True),
        [("AR405", 4)],
    ),
    "a link of all ranks, and the file to which it leads": (
        Script(2).file(0, "link", "m.pt", "latest", line=2).file(1, "read", "m.pt", line=4),
        [],
    ),
    "a lock file is opened by all": (
        Script(2)
        .file(0, "create", "lock", line=2)
        .add(0, "lock", line=3, path="/p/lock")
        .add(0, "unlock", line=4, path="/p/lock")
        .file(1, "create", "lock", line=2)
        .add(1, "lock", line=3, path="/p/lock"),
        [],
    ),
    "each publishes the same content": (
        Script(2)
        .file(0, "rename", "v.0", "v", line=3, content="a")
        .file(1, "rename", "v.1", "v", line=3, content="a")
        .file(0, "read", "v", line=4)
        .file(1, "read", "v", line=4),
        [],
    ),
    "each publishes another content": (
        Script(2).file(0, "rename", "v.0", "v", line=3, content="a").file(1, "rename", "v.1", "v", line=3, content="b"),
        [("AR102", 3)],
    ),
    "checked, and checked again under a lock": (
        Script(2)
        .file(0, "exists", "d", line=2, existed=False)
        .add(0, "lock", line=3, path="/p/lock")
        .file(0, "exists", "d", line=2, existed=False)
        .file(0, "rename", "d.tmp", "d", line=4, existed=False)
        .add(0, "unlock", line=5, path="/p/lock")
        .file(1, "exists", "d", line=2),
        [],
    ),
    "read at first, then again under the lock of who builds": (
        Script(2)
        .add(0, "lock", line=3, path="/p/lock")
        .file(0, "rename", "d.tmp", "d", line=4, existed=False)
        .add(0, "unlock", line=5, path="/p/lock")
        .file(1, "read", "d", line=2)
        .add(1, "lock", line=3, path="/p/lock")
        .file(1, "read", "d", line=4),
        [],
    ),
    "read, then another lock": (
        Script(2)
        .add(0, "lock", line=3, path="/p/lock")
        .file(0, "rename", "d.tmp", "d", line=4, existed=False)
        .add(0, "unlock", line=5, path="/p/lock")
        .file(1, "read", "d", line=2)
        .add(1, "lock", line=3, path="/p/other"),
        [("AR405", 2)],
    ),
    "checked, then built by who creates the lock file": (
        Script(2)
        .file(0, "exists", "d", line=2, existed=False)
        .file(1, "exists", "d", line=2, existed=False)
        .file(0, "exclusive", "d.lock", line=3, existed=False)
        .file(0, "rename", "d.tmp", "d", line=4, existed=False),
        [],
    ),
    "checked, then built under a temporary name": (
        Script(2)
        .file(0, "exists", "d", line=2, existed=False)
        .file(1, "exists", "d", line=2, existed=False)
        .file(0, "exclusive", "tmpx8", line=3, existed=False)
        .file(0, "rename", "tmpx8", "d", line=4, existed=False),
        [("AR108", 2)],
    ),
    "awaited, and there at the first check": (
        Script(2)
        .file(0, "rename", "v.tmp", "v", line=2, existed=False)
        .file(0, "create", "v.ready", line=3, existed=False)
        .file(1, "exists", "v.ready", line=5, waits=True)
        .file(1, "read", "v", line=6),
        [],
    ),
    "checked once, then read": (
        Script(2)
        .file(0, "rename", "v.tmp", "v", line=2, existed=False)
        .file(0, "create", "v.ready", line=3, existed=False)
        .file(1, "exists", "v.ready", line=5)
        .file(1, "read", "v", line=6),
        [("AR405", 6)],
    ),
    "read after a barrier": (Script(2).file(0, "create", "v").barrier().file(1, "read", "v"), []),
    "removed under a reader": (
        Script(2).file(1, "read", "v", line=4).file(0, "remove", "v", line=7),
        [("AR109", 7)],
    ),
    "a folder of rank 0 is filled": (
        Script(2).file(0, "mkdir", "d", line=2, existed=False).file(1, "create", "d/1", line=3, existed=False),
        [("AR405", 3)],
    ),
    "each makes the folder that it fills": (
        Script(2)
        .file(0, "mkdir", "d", existed=False)
        .add(0, "mkdir", path="/p/d", exist_ok=True, parents=True)
        .file(1, "mkdir", "d")
        .add(1, "mkdir", path="/p/d", exist_ok=True, parents=True)
        .file(1, "create", "d/1", existed=False),
        [],
    ),
    "checked, then made": (
        Script(2)
        .file(0, "exists", "d", line=2, existed=False)
        .file(0, "mkdir", "d", line=3, existed=False)
        .add(0, "mkdir", line=3, path="/p/d", exist_ok=False, parents=True)
        .file(1, "exists", "d", line=2),
        [("AR108", 2)],
    ),
    "checked, then made by what may be done twice": (
        Script(2)
        .file(0, "exists", "d", line=2, existed=False)
        .file(0, "mkdir", "d", line=3, existed=False)
        .add(0, "mkdir", line=3, path="/p/d", exist_ok=True, parents=True)
        .file(1, "exists", "d", line=2),
        [],
    ),
}


@pytest.mark.parametrize("name", FILES)
def test_files(name: str) -> None:
    script, expected = FILES[name]
    assert found(script) == expected


def test_a_finding_has_both_lines_in_the_order_of_time_and_relative_names() -> None:
    script = Script(2).file(1, "read", "v", line=4, existed=False).file(0, "create", "v", line=2, existed=False)
    (one,) = files.judge(script.case())
    assert one.message == "rank 1 reads v, which rank 0 writes, and nothing orders the two"
    assert [note.text for note in one.notes] == [
        "rank 1, step 0: opens v to read (it is not)",
        "rank 0, step 0: opens v to write, 1 ms later; seen in the quiet run",
    ]
    assert [note.place.line for note in one.notes if note.place] == [4, 2]


def weights(script: Script, number: int, values: str, gradients: str, line: int = 9) -> Script:
    """One optimizer with one parameter: a letter for each rank."""
    for rank, (value, gradient) in enumerate(zip(values, gradients, strict=True)):
        row = ["w", 0, "float32[4]", "", value, gradient.strip(), True]
        script.add(rank, "weights", line, optimizer=0, number=number, rows=[row], rates=[0.1])
    return script


def of_all(script: Script, kind: str, line: int = 5, **facts: Any) -> Script:
    """The same event on each rank; a fact in a tuple has a value for each."""
    for rank in range(script.ranks):
        mine = {name: value[rank] if isinstance(value, tuple) else value for name, value in facts.items()}
        script.add(rank, kind, line, **mine)
    return script


REPLICAS: dict[str, tuple[Script, list[str]]] = {
    "reduced": (weights(weights(Script(2), 0, "aa", "gg"), 1, "bb", "hh"), []),
    "never reduced": (weights(weights(Script(2), 0, "aa", "gh"), 1, "bc", "ij"), ["AR705"]),
    "averaged after the step": (weights(weights(Script(2), 0, "aa", "gh"), 1, "bb", "ij"), []),
    "begun apart, reduced": (weights(Script(2), 0, "ab", "gg"), ["AR702"]),
    "models of their own": (weights(Script(2), 0, "ab", "gh"), ["AR705"]),
    "apart later": (weights(weights(weights(Script(2), 0, "aa", "gg"), 1, "bb", "hh"), 2, "cd", "ii"), ["AR004"]),
    "apart until the end of a Join": (
        weights(weights(weights(of_all(Script(2), "join"), 0, "aa", "gg"), 1, "bb", "hh"), 2, "cd", "ii"),
        [],
    ),
    "parts of one model, its second part with inputs of its own": (
        weights(
            of_all(of_all(Script(2), "input", samples=(["a"], ["a"])), "input", samples=(["b"], ["c"])), 0, "ab", "gh"
        ),
        [],
    ),
    "no gradients": (weights(weights(weights(Script(2), 0, "aa", "  "), 1, "aa", "  "), 2, "aa", "  "), ["AR003"]),
    "loaded by one": (
        weights(Script(2).add(0, "load", 5, lost=0, unset=0, keys=1, missing=[], unexpected=[]), 0, "ab", "gg"),
        ["AR501"],
    ),
}


@pytest.mark.parametrize("name", REPLICAS)
def test_replicas(name: str) -> None:
    script, expected = REPLICAS[name]
    assert [code for code, _ in found(script)] == expected


def trained(steps: int = 3) -> Script:
    """Replicas that share their gradients."""
    script = Script(2)
    for number in range(steps):
        of_all(weights(script, number, "abcdef"[number] * 2, "gg"), "step", 9)
    return script


def branch(script: Script, values: tuple[float, ...], controls: list[str], within: list[int]) -> Script:
    for rank, value in enumerate(values):
        script.add(rank, "branch", 8, at=8, count=1, values=[value], controls=controls, within=within)
    return script


def noise(digests: str, samples: tuple[list[str], list[str]] = (["a", "b"], ["c", "d"])) -> Script:
    """A draw of two rows at each step: a letter for each rank."""
    script = Script(2)
    for count in range(3):
        of_all(script, "input", 4, samples=samples)
        of_all(
            script, "draw", name="randn", count=count, shape=[2, 4], digest=tuple(f"{count}{one}" for one in digests)
        )
    return script


PART = {"function": "torch.save", "arrays": 1, "buffers": [], "parts": [["w", [2, 4], [4, 4], 8, 16]]}
WHOLE = {**PART, "parts": []}
CAUGHT = {"error": "ValueError: x", "controls": ["broad"], "within": [7, 9]}
DECISIONS: dict[str, tuple[Script, list[str]]] = {
    "a break by one's own loss": (branch(trained(), (0.1, 0.2), ["leave"], [7, 9]), ["AR209"]),
    "a break by a reduced loss": (branch(trained(), (0.1, 0.1), ["leave"], [7, 9]), []),
    "a loop without steps": (branch(trained(), (0.1, 0.2), ["leave"], [20, 30]), []),
    "ranks that share nothing": (branch(Script(2), (0.1, 0.2), ["leave"], [7, 9]), []),
    "decided by rank 0 alone": (branch(trained(), (0.1,), ["leave"], [7, 9]), []),
    "the best by one's own loss": (branch(trained(), (0.1, 0.2), ["save"], []), ["AR310"]),
    "a step by one's own loss": (branch(trained(), (0.1, 0.2), ["step"], []), ["AR203"]),
    "a rate by one's own loss": (of_all(trained(), "plateau", values=([0.1], [0.2])), ["AR310"]),
    "an error skipped": (
        trained().add(1, "caught", 9, **CAUGHT, in_loop=True).add(1, "enter", key="x", way="all"),
        ["AR209"],
    ),
    "an error that is not shown": (trained().add(1, "caught", 10, **CAUGHT, in_loop=False).add(1, "left"), ["AR008"]),
    "an error that ends the job": (trained().add(1, "caught", 10, **CAUGHT, in_loop=False), []),
    "a thread left": (Script(2).add(0, "behind", 3, what="thread", name="t"), ["AR009"]),
    "ended while an error was handled": (Script(2).add(0, "hidden", 3, error="ValueError"), ["AR008"]),
    "a shard saved as the whole": (Script(2).add(0, "saved", **PART), ["AR403"]),
    "each rank saves its shard": (of_all(Script(2), "saved", **PART), []),
    "the whole is saved": (Script(2).add(0, "saved", **WHOLE), []),
    "statistics of one rank": (
        of_all(Script(2), "buffers", 4, module="M", number=1, digests=({"m": "a"}, {"m": "b"})).add(
            0, "saved", **{**WHOLE, "buffers": ["m"]}
        ),
        ["AR010"],
    ),
    "statistics of all": (
        of_all(Script(2), "buffers", 4, module="M", number=1, digests=({"m": "a"}, {"m": "b"})).add(
            0, "saved", **WHOLE
        ),
        [],
    ),
    "an average that differs": (
        of_all(trained(), "evaluated", module="M", number=0, shapes=[], digests=({"w": "a"}, {"w": "b"})),
        ["AR004"],
    ),
    "an average that is equal": (
        of_all(trained(), "evaluated", module="M", number=0, shapes=[], digests={"w": "a"}),
        [],
    ),
    "a parameter left out": (of_all(trained(), "untrained", names=["head"], count=1), ["AR011"]),
    "no parameter left out": (of_all(trained(), "untrained", names=[], count=0), []),
    "the same noise": (noise("xx"), ["AR701"]),
    "other noise": (noise("xy"), []),
    "the same noise for the same data": (noise("xx", (["a", "b"], ["a", "b"])), []),
    "noise for all rows": (noise("xx", (["a"], ["c"])), []),
    "one key on all devices": (of_all(Script(2), "mapped", name="bernoulli", keys=["k", "k"]), ["AR701"]),
    "printed by all": (
        of_all(of_all(Script(2), "printed", text="x", count=1), "printed", text="y", count=2),
        ["AR012"],
    ),
    "printed by each": (
        of_all(of_all(Script(2), "printed", text=("x", "y"), count=1), "printed", text=("z", "u"), count=2),
        [],
    ),
    "event files in one folder": (
        Script(2).file(0, "create", "log/events.out.tfevents.1").file(1, "create", "log/events.out.tfevents.2"),
        ["AR103"],
    ),
    "an event file": (Script(2).file(0, "create", "log/events.out.tfevents.1"), []),
    "a key for each device": (of_all(Script(2), "mapped", name="bernoulli", keys=["k", "l"]), []),
}


@pytest.mark.parametrize("name", DECISIONS)
def test_decisions_exits_saves_and_random_numbers(name: str) -> None:
    script, expected = DECISIONS[name]
    assert [code for code, _ in found(script)] == expected


@pytest.mark.parametrize(("later", "expected"), [((3, 4), ["AR702"]), ((1, 2), []), ((3, 3), ["AR702"])])
def test_a_seed_that_changes_with_each_run(later: tuple[int, int], expected: list[str]) -> None:
    before, after = (of_all(Script(2), "seed", name="seed", count=1, value=those) for those in ((1, 2), later))
    assert [one.code for one in randomness.seeds(before.trace(), after.trace())] == expected


def batches(script: Script, *ranks: list[str], epoch: int = 0, **facts: Any) -> Script:
    """One loader: for each rank its batches, a letter for each sample."""
    told = {
        "sampler": "S",
        "shuffle": True,
        "replacement": False,
        "length": 2,
        "samples": 4,
        "dataset": 8,
        "workers": 0,
    }
    for rank, those in enumerate(ranks):
        script.add(rank, "epoch", 3, loader=0, epoch=epoch, **{**told, **facts})
        for number, batch in enumerate(those):
            script.add(rank, "batch", 3, loader=0, epoch=epoch, number=number, samples=list(batch))
        script.add(rank, "exhausted", 3, loader=0, epoch=epoch, batches=len(those))
    return script


DATA: dict[str, tuple[Script, list[str]]] = {
    "a part each": (batches(Script(2), ["ab", "cd"], ["ef", "gh"]), []),
    "the same": (batches(Script(2), ["ab", "cd"], ["ab", "cd"]), ["AR301"]),
    "the same in another order": (batches(Script(2), ["ab", "cd"], ["ca", "db"], samples=8), ["AR301"]),
    "one constant batch": (batches(Script(2), ["ab", "ab"], ["ab", "ab"]), []),
    "drawn with replacement": (batches(Script(2), ["ab", "ca"], ["ac", "bd"], replacement=True), []),
    "a batch more on rank 0": (batches(Script(2), ["ab", "cd", "ij"], ["ef", "gh"]), ["AR304"]),
    "parts of other orders": (
        batches(Script(2), ["ab", "cd", "ef", "gh"], ["ac", "bg", "fe", "ij"]),
        ["AR308"],
    ),
    "each worker yields all": (
        batches(Script(2), ["ab", "ab", "cd", "cd"], ["ef", "ef", "gh", "gh"], workers=2),
        ["AR301"],
    ),
    "one order for all epochs": (
        batches(batches(Script(2), ["ab", "cd"], ["ef", "gh"]), ["ab", "cd"], ["ef", "gh"], epoch=1),
        ["AR302"],
    ),
    "another order each epoch": (
        batches(batches(Script(2), ["ab", "cd"], ["ef", "gh"]), ["da", "cb"], ["he", "gf"], epoch=1),
        [],
    ),
}


@pytest.mark.parametrize("name", DATA)
def test_data(name: str) -> None:
    script, expected = DATA[name]
    assert [code for code, _ in found(script)] == expected


def test_ranks_with_parts_of_one_model_may_get_the_same_batch() -> None:
    """Other weights and equal gradients, or parts of one tensor: no replicas of one another."""
    script = Script(2)
    for rank in (0, 1):
        row = ["w", 0, "float32[4]", "Shard(0)", f"v{rank}", "g", True]
        script.add(rank, "weights", 9, optimizer=0, number=0, rows=[row], rates=[0.1])
    assert found(batches(script, ["ab", "cd"], ["ab", "cd"])) == []
    replicas = weights(weights(Script(2), 0, "aa", "gg"), 1, "bb", "hh")
    assert [code for code, _ in found(batches(replicas, ["ab", "cd"], ["ab", "cd"]))] == ["AR301"]


def test_parts_of_other_orders_without_a_loader() -> None:
    """Ranks that shuffle alike share no sample of the first epoch; samples drawn with replacement prove nothing."""
    for mine, theirs, expected in [
        (["abcd", "efgh"], ["ijef", "cdab"], ["AR308"]),
        (["abcd", "efgh"], ["ijkl", "mnop"], []),
        (["abcd", "efgh", "ijkl"], ["ijkl", "mnop", "abcd"], ["AR308"]),
        (["abca", "efgh"], ["abef", "cdab"], []),
    ]:
        script = trained()
        for a, b in zip(mine, theirs, strict=True):
            of_all(script, "input", 4, samples=(list(a), list(b)))
        assert [code for code, _ in found(script)] == expected


def run(samples: dict[int, str], values: dict[int, str], **extra: Any) -> Script:
    """Rank 0 of a run: samples and weights by step."""
    script = Script(1)
    for step in sorted(values):
        script.steps[0] = step
        if step in samples:
            script.add(0, "input", 7, samples=list(samples[step]))
        row = ["w", 0, "float32[4]", "", values[step], extra.get("gradient", "g"), True]
        script.add(0, "weights", 9, optimizer=0, number=step, rows=[row], rates=[extra.get("rate", 0.1)])
    return script


BASELINE = run({0: "ab", 1: "cd", 2: "ef", 3: "gh"}, {0: "p", 1: "q", 2: "r", 3: "s"})
KILLED = (
    run({0: "ab", 1: "cd", 2: "ef"}, {0: "p", 1: "q", 2: "r"}).file(0, "create", "last.pt").add(0, "killed", steps=3)
)


def resumed(samples: dict[int, str], values: dict[int, str], **extra: Any) -> Script:
    script = run(samples, values, **extra)
    return script.file(0, "read", "last.pt", line=5)


RESUMES: dict[str, tuple[Script, list[str]]] = {
    "goes on": (resumed({0: "ef", 1: "gh"}, {0: "r", 1: "s"}), []),
    "begins anew": (resumed({0: "ab", 1: "cd"}, {0: "p", 1: "q"}), ["AR005"]),
    "data again": (resumed({0: "ab", 1: "cd"}, {0: "r", 1: "x"}), ["AR311"]),
    "data left out": (resumed({0: "gh"}, {0: "r", 1: "x"}), ["AR311"]),
    "another state of the optimizer": (resumed({0: "ef"}, {0: "r", 1: "x"}), ["AR006"]),
    "another rate": (resumed({0: "ef"}, {0: "r", 1: "x"}, rate=0.5), ["AR006"]),
    "another gradient": (resumed({0: "ef"}, {0: "r", 1: "x"}, gradient="h"), ["AR006"]),
    "its own checkpoint is copied": (
        run({0: "ab"}, {0: "p", 1: "x"}).file(0, "create", "last.pt").file(0, "read", "last.pt"),
        [],
    ),
    "no checkpoint is read": (run({0: "ab"}, {0: "p", 1: "q"}), []),
}


@pytest.mark.parametrize("name", RESUMES)
def test_resumes(name: str) -> None:
    script, expected = RESUMES[name]
    judged = resume.judge(BASELINE.trace(), [KILLED.trace(), script.trace()])
    assert [one.code for one in judged] == expected


def test_batches_of_a_validation_are_no_samples_of_a_step() -> None:
    """Before step 2, the run without a kill validates, and the resumed one does not."""

    def run_with_validation(samples: str, values: str, validated: tuple[int, ...]) -> Script:
        script = Script(1)
        for step, (sample, value) in enumerate(zip(samples, values, strict=True)):
            script.steps[0] = step
            for batch in "vw" if step in validated else "":
                script.add(0, "batch", 3, loader=0, epoch=0, number=0, samples=[batch])
            script.add(0, "batch", 7, loader=1, epoch=0, number=step, samples=[sample])
            row = ["w", 0, "float32[4]", "", value, "g", True]
            script.add(0, "weights", 9, optimizer=0, number=step, rows=[row], rates=[0.1])
            script.add(0, "step", 9, optimizer=0, number=step)
        return script

    whole = run_with_validation("abcd", "pqrs", (0, 2)).trace()
    killed = run_with_validation("abc", "pqr", (0, 2)).file(0, "create", "last.pt").add(0, "killed", steps=3).trace()
    for samples, expected in (("cd", []), ("dc", ["AR311"])):
        again = run_with_validation(samples, "rs", ()).file(0, "read", "last.pt", line=5).trace()
        assert [one.code for one in resume.judge(whole, [killed, again])] == expected


def test_wrong_samples_after_a_resume_are_found_where_the_loader_gives_them() -> None:
    """The line of the loader is the one to change, not that of the model; a step has a batch or it has none."""
    for has_batch, line in ((True, 6), (False, 7)):
        script = Script(1).file(0, "read", "last.pt", line=5)
        if has_batch:
            script.add(0, "batch", 6, loader=0, epoch=0, number=0, samples=["a", "b"])
        script.add(0, "input", 7, samples=["a", "b"])
        script.add(
            0, "weights", 9, optimizer=0, number=0, rows=[["w", 0, "float32[4]", "", "r", "g", True]], rates=[0.1]
        )
        script.add(0, "step", 9, optimizer=0, number=0)
        judged = resume.judge(BASELINE.trace(), [KILLED.trace(), script.trace()])
        assert [(one.code, one.place.line) for one in judged] == [("AR311", line)]


def test_why_a_resume_was_not_judged() -> None:
    ended = run({0: "ab"}, {0: "p", 1: "q"}).trace()
    assert "no checkpoint appeared" in resume.unseen(BASELINE.trace(), [ended])
    assert "--resume-args" in resume.unseen(BASELINE.trace(), [KILLED.trace(), ended])
    assert resume.unseen(BASELINE.trace(), [KILLED.trace(), resumed({0: "ef"}, {0: "r"}).trace()]) == ""


def test_a_fault_of_hosts_is_called_so_only_where_one_host_did_not_have_it() -> None:
    script = Script(2).file(0, "create", "m.pt", line=3).file(1, "create", "m.pt", line=3)
    those = list(files.judge(script.case()))
    assert [one.code for one in hosts.recoded(those, [])] == ["AR105"]
    assert [one.code for one in hosts.recoded(those, those)] == ["AR101"]


def test_hosts_that_train_apart_are_one_warning() -> None:
    """A Trainer of Lightning with one device on each of two hosts, and without num_nodes, does so."""
    together, apart = Script(2).barrier(), Script(2)
    for script in (together, apart):
        script.add(0, "step", 7).add(1, "step", 7)
    found = hosts.apart(apart.case(), together.trace())
    assert found is not None
    assert (found.code, found.severity, found.place.line) == ("AR606", "warning", 7)
    assert hosts.apart(together.case(), together.trace()) is None
    assert hosts.apart(apart.case(), apart.trace()) is None


def device(script: Script, rank: int, device: str, host: str = "a") -> Script:
    script.add(rank, "device", 4, device=device, index=int(device), host=host)
    return script.add(rank, "nccl", 5)


def test_ranks_of_a_host_share_a_device_only_if_they_use_no_other() -> None:
    assert found(device(device(Script(2), 0, "0"), 1, "0")) == [("AR605", 4)]
    assert found(device(device(Script(2), 0, "0"), 1, "1")) == []
    assert found(device(device(Script(2), 0, "0"), 1, "0", host="b")) == []
    assert found(device(device(device(Script(2), 0, "0"), 1, "0"), 1, "1")) == []
    alone = Script(2).add(0, "device", device="0", index=0, host="a").add(1, "device", device="0", index=0, host="a")
    assert found(alone) == []


def test_what_stands_in_for_an_accelerator_is_in_the_table() -> None:
    script = Script(2).add(0, "replaced", name="Tensor.cuda").add(1, "replaced", name="NCCL (gloo)")
    (*_, row) = topics.rows([script.trace()], [], {})
    assert (row.topic, row.verdict) == ("accelerator", "ok")
    assert row.texts[0].startswith("this machine's CPU in the place of Tensor.cuda, NCCL (gloo).")
    (*_, row) = topics.rows([script.trace()], [], {}, "psum is wrong")
    assert (row.verdict, row.texts[1]) == ("warning", "psum is wrong")


def test_the_table_says_what_was_found_what_was_right_and_what_was_not_seen() -> None:
    script = Script(2).file(0, "create", "m.pt", line=3).file(1, "create", "m.pt", line=3).barrier()
    weights(weights(script, 0, "aa", "gg"), 1, "bb", "hh")
    case = script.case()
    made = topics.rows(
        [case.trace], list(all_findings(case)), {"resume": "", "hosts": "2 ranks are not spread over 3 hosts"}
    )
    assert [(row.topic, row.verdict, row.texts[0]) for row in made] == [
        ("files", "error", "ranks 0-1 write m.pt, and nothing orders them"),
        ("checkpoints", "not seen", "no array was saved"),
        ("data", "not seen", "no loader, no forward pass in training and no global array was seen"),
        ("weights", "ok", "4 comparisons"),
        ("gradients", "ok", "4 comparisons"),
        ("random numbers", "ok", "4 comparisons"),
        ("collectives", "ok", "2 synchronisations"),
        ("decisions", "not seen", "no branch that all ranks reached depends on a float"),
        ("exits", "not seen", "no rank ended by itself"),
        ("metrics", "not seen", "no value was logged to a tracker"),
        ("trackers", "not seen", "no tracker was used"),
        ("output", "not seen", "the program printed nothing"),
        ("hosts", "not seen", "2 ranks are not spread over 3 hosts"),
        ("resume", "ok", "the run went on after two interruptions as it did without"),
    ]


def test_parents_that_one_rank_makes_are_no_folder_of_its_own() -> None:
    """``os.makedirs("runs/one")`` makes two folders on the rank that comes first, and one on the other."""
    script = Script(2).add(0, "mkdir", path="/p/runs", exist_ok=True, parents=True, direct=False)
    for rank in (0, 1):
        script.add(rank, "mkdir", path="/p/runs/one", exist_ok=True, parents=True, direct=True)
    assert found(script) == []
    script.add(0, "mkdir", 2, path="/p/runs/1", exist_ok=True, parents=True)
    assert found(script.add(1, "mkdir", 2, path="/p/runs/7", exist_ok=True, parents=True)) == [("AR107", 2)]


def test_what_the_probes_could_not_see_is_in_the_table() -> None:
    script = Script(2)
    for rank in (0, 1):
        script.add(rank, "unattached", module="torch.optim", error="AttributeError: no hook")
    script.add(0, "unwatched", why="Operation not permitted")
    (*_, row) = topics.rows([script.trace()], [], {})
    assert (row.topic, row.verdict, row.texts) == (
        "probes",
        "not seen",
        (
            f"{UNWATCHED}: Operation not permitted",
            "torch.optim: AttributeError: no hook",
        ),
    )


def test_every_kind_of_fault_has_a_row() -> None:
    for script, codes in [*REPLICAS.values(), *DATA.values()]:
        for code in codes:
            assert any(code.startswith(topic.codes) for topic in topics.TOPICS), (code, script)


def parts(total: int) -> Script:
    script = Script(2)
    sampler = {"sampler": "DistributedSampler", "replacement": False, "shuffle": False, "samples": 2, "dataset": 8}
    for rank in (0, 1):
        script.add(rank, "epoch", 3, loader=0, epoch=0, workers=0, length=2, part=[rank, total], **sampler)
        for number in (0, 1):
            script.add(rank, "batch", 3, loader=0, epoch=0, number=number, samples=[f"{rank} {number}"])
    return script


def test_parts_of_the_data_that_no_rank_reads() -> None:
    assert found(parts(4)) == [("AR303", 3)]
    assert found(parts(2)) == []


@pytest.mark.parametrize(("sources", "expected"), [(("a", "b"), [("AR312", 3)]), (("a", "a"), []), (("a", ""), [])])
def test_parts_that_are_cut_out_of_arrays_of_each_process(sources: tuple[str, str], expected: list) -> None:
    script = Script(2)
    for rank, source in enumerate(sources):
        script.add(
            rank, "global", 3, name="make_array_from_callback", number=1, parts=[str(rank)], samples=[f"{rank}"],
            replicated=False, shape=[8, 4], source=source,
        )  # fmt: skip
    assert found(script) == expected


def summed(count: int) -> Script:
    script = Script(2)
    for rank in range(count):
        script.add(rank, "summed", 4, optimizer=0, number=1, count=2, total=2)
    return script


def test_gradients_that_all_ranks_sum_and_none_divides() -> None:
    assert found(summed(2)) == [("AR024", 4)]
    assert found(summed(1)) == []


def test_a_look_at_one_batch_is_no_epoch() -> None:
    """``next(iter(loader))`` before ``set_epoch`` has the order of the epoch before."""
    script = batches(Script(2), ["abcd", "efgh"], ["ijkl", "mnop"])
    looked = [event for event in script.events if event.kind != "exhausted"]
    script.events[:] = [event for event in looked if event.kind != "batch" or event.data["number"] == 0]
    assert found(batches(script, ["abcd", "efgh"], ["ijkl", "mnop"], epoch=1)) == []
    assert found(batches(script, ["abcd", "efgh"], ["ijkl", "mnop"], epoch=2)) == [("AR302", 3)]


def saved_at_one_line(names: dict[int, list[str]]) -> Script:
    script, known = Script(2), set()
    for rank, those in names.items():
        for name in those:
            script.file(rank, "create", name, line=5, existed=name in known)
            known.add(name)
    return script


def test_names_that_both_ranks_use_are_not_names_of_each_rank() -> None:
    """A rank that is an epoch ahead makes the next file first."""
    assert "AR107" not in {code for code, _ in found(saved_at_one_line({0: ["e0.pt", "e1.pt"], 1: ["e0.pt", "e1.pt"]}))}
    assert ("AR107", 5) in found(saved_at_one_line({0: ["a71.pt"], 1: ["b16.pt"]}))


def test_a_resume_at_a_step_that_was_not_recorded_is_not_called_right() -> None:
    def run(*steps: tuple[int, str]) -> Script:
        script = Script(1)
        for number, value in steps:
            row = ["weight", 0, "float32[4]", "", value, "g", True]
            script.add(0, "weights", optimizer=0, number=number, rows=[row], rates=[0.1], random="", dropout="")
        return script

    killed = run((0, "a")).add(0, "killed", steps=3).file(0, "create", "m.pt")
    killed.events[-1] = replace(killed.events[-1], step=2)
    again = Script(1).file(0, "read", "m.pt")
    again.events += run((0, "z")).events
    said = resume.unseen(run((0, "a"), (1, "b")).trace(), [killed.trace(), again.trace()])
    assert said == "the weights after the restart are of no step that was recorded"
