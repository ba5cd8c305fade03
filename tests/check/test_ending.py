"""Processes that end for good: whom they leave behind, and who ends the job."""

from __future__ import annotations

import textwrap

import pytest

from allranks.check.engine import Settings, check

START = """\
import os
import sys
import threading
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
"""


def found(text: str) -> list[str]:
    """Return codes and lines below the start."""
    source = START + textwrap.dedent(text)
    findings = check({"train.py": source.encode()}, Settings(select=("AR2",))).findings
    return [f"{one.code}:{one.place.line - START.count(chr(10))}" for one in findings]


WAYS = (
    "return",
    "sys.exit()",
    "sys.exit(0)",
    "os._exit(0)",
    "exit()",
    "quit()",
    "raise SystemExit",
    "raise SystemExit(0)",
)


@pytest.mark.parametrize("way", WAYS)
def test_who_ends_leaves_the_others_as_who_returns_does(way: str) -> None:
    """In its function."""
    assert found(f"def main():\n    if rank != 0:\n        {way}\n    dist.barrier()\nmain()\n") == ["AR202:4"]


LEFT = {
    "a program": ("if rank != 0:\n    sys.exit(0)\ndist.barrier()\n", ["AR202:3"]),
    "the caller, by a function that lets one go on": (
        """\
        def first_alone():
            if rank != 0:
                print("bye")
                sys.exit(0)
        def main():
            first_alone()
            dist.barrier()
        main()
        """,
        ["AR202:7"],
    ),
    "the caller's caller": (
        """\
        class Setup:
            def __init__(self, rank):
                if rank > 0:
                    self.leave()
            def leave(self):
                print("bye")
                os._exit(0)
        def prepare():
            Setup(rank)
            print("alone")
        prepare()
        dist.barrier()
        """,
        ["AR202:12"],
    ),
    "a function that ends whoever calls it": (
        """\
        def bye():
            print("bye")
            sys.exit()
        if rank != 0:
            bye()
        dist.barrier()
        """,
        ["AR202:6"],
    ),
    "once, where it is left first": (
        """\
        def main():
            if rank != 0:
                sys.exit()
            dist.barrier()
        main()
        dist.barrier()
        """,
        ["AR202:4"],
    ),
    "by the clock": (
        """\
        import time
        def main(batches, end):
            for batch in batches:
                dist.all_reduce(batch)
                if time.time() > end:
                    sys.exit()
        main([], 7)
        """,
        ["AR209:4"],
    ),
    "in a loop": (
        """\
        def main(batches):
            for batch in batches:
                dist.all_reduce(batch)
                if rank == 0 and batch.sum() > 7:
                    sys.exit()
        main([])
        """,
        ["AR202:3"],
    ),
}


@pytest.mark.parametrize("whom", LEFT)
def test_whom_a_process_leaves_behind(whom: str) -> None:
    """Its function, and those that called it."""
    text, expected = LEFT[whom]
    assert found(text) == expected


SILENT = {
    "all end": """
        def main(args):
            if args.check:
                sys.exit(0)
            if rank >= 0:
                dist.barrier()
                sys.exit(0)
        main(None)
        """,
    "all have met": """
        def main():
            dist.barrier()
            if rank != 0:
                sys.exit(0)
            print("done")
        main()
        print("alone")
        """,
    "an error ends the job": """
        def main(code):
            if rank == 1:
                sys.exit(1)
            if rank == 2:
                sys.exit("no data")
            if rank == 3:
                raise SystemExit(2)
            if rank == 4:
                raise RuntimeError("no data")
            dist.barrier()
        main(1)
        """,
    "a code that is what all make of it": """
        def train():
            dist.barrier()
            return 0
        if rank != 0:
            sys.exit(train())
        sys.exit(train())
        """,
    "both sides meet alike": """
        def main():
            if rank != 0:
                dist.barrier()
                sys.exit(0)
            dist.barrier()
        main()
        """,
    "a function that another thread runs": """
        def watch():
            if rank == 0:
                print("late")
            os._exit(0)
        threading.Thread(target=watch).start()
        dist.barrier()
        """,
    "a handler that is registered": """
        import signal
        def stop(number, frame):
            sys.exit(0)
        signal.signal(signal.SIGTERM, stop)
        if rank == 0:
            signal.signal(signal.SIGINT, stop)
        dist.barrier()
        """,
    "what each finds wrong for itself": """
        def check(folder):
            if not os.path.exists(f"{folder}/{rank}.pt"):
                print("nothing there")
                sys.exit()
        def main(folder):
            if not os.path.exists(folder):
                print("nothing there")
                sys.exit()
            check(folder)
            dist.barrier()
        main("data")
        """,
    "some leave, and the others have no one to meet": """
        def first_alone():
            if rank != 0:
                sys.exit(0)
        first_alone()
        print("alone")
        """,
}


@pytest.mark.parametrize("case", SILENT)
def test_nobody_is_left_behind(case: str) -> None:
    """All leave, all have met, or the job has ended."""
    assert found(SILENT[case]) == []


def test_who_has_left_writes_nothing() -> None:
    """A function that ends all but the first is a guard for what follows its call."""
    text = "def first_alone():\n    if rank != 0:\n        sys.exit(0)\nfirst_alone()\nopen('x.txt', 'w').write('x')\n"
    findings = check({"train.py": (START + text).encode()}, Settings(select=("AR102",))).findings
    assert not findings
    without = (START + text).replace("sys.exit(0)", "print()")
    assert check({"train.py": without.encode()}, Settings(select=("AR102",))).findings


BAD = (
    "if device != 'cuda' and rank == 0:\n    sys.exit(1)\n",
    "if device != 'cuda':\n    if rank == 0:\n        raise ValueError(device)\n",
    "def seen():\n    if device != 'cuda' and rank == 0:\n        raise ValueError(device)\nseen()\n",
)


@pytest.mark.parametrize("bad", BAD)
def test_who_ends_the_job_is_no_guard_for_the_others(bad: str) -> None:
    """Where rank 0 stops with an error there is no job; where there is one, rank 0 goes on with the others."""
    text = f"{START}device = sys.argv[1]\n{bad}open('x.txt', 'w').write('x')\n"
    assert check({"train.py": text.encode()}, Settings(select=("AR102",))).findings


STOPS = ("if rank != 0:\n    raise ValueError(rank)\n", "if len(sys.argv) > 1 and rank != 1:\n    sys.exit(0)\n")


@pytest.mark.parametrize("stops", STOPS)
def test_who_must_stop_or_ends_well_writes_nothing(stops: str) -> None:
    """One stops with an error whatever else holds, the other leaves the rest of the job running."""
    text = f"{START}{stops}open('x.txt', 'w').write('x')\n"
    assert not check({"train.py": text.encode()}, Settings(select=("AR102",))).findings


@pytest.mark.parametrize(
    ("way", "codes"),
    [("sys.exit(2)", ["AR202"]), ("raise SystemExit(2)", ["AR202"]), ("os._exit(2)", []), ("raise OSError", [])],
)
def test_with_mpi4py_who_ends_with_an_error_waits_for_the_others(way: str, codes: list[str]) -> None:
    """The launcher learns of it when Python has ended; of ``os._exit``, at once."""
    text = f"""\
import os
import sys
from mpi4py import MPI

comm = MPI.COMM_WORLD
if comm.rank == 0 and os.path.exists("out"):
    {way}
comm.Barrier()
"""
    findings = check({"train.py": text.encode()}, Settings(select=("AR2",))).findings
    assert [one.code for one in findings] == codes


def test_who_ends_under_a_condition_of_the_function_that_one_rank_calls_leaves_the_others() -> None:
    """A function, or an object that is called."""
    ends = """
        class Enough:
            def __call__(self, score):
                if score > 0.9:
                    sys.exit(0)
        def stop(score):
            if score > 0.9:
                sys.exit(0)
        def main(score):
            for epoch in range(9):
                dist.barrier()
                if rank == 0:
                    {}(score)
        enough = Enough()
        main(1)
        """
    assert found(ends.format("stop")) == found(ends.format("enough")) == ["AR202:11"]
    assert found(ends.format("stop").replace("if rank == 0", "if epoch == 7")) == []


@pytest.mark.parametrize(("trains", "lines"), [("dist.barrier()", []), ("print(rank)", [15])])
def test_where_training_ends_all_but_one_nobody_else_comes_after_it(trains: str, lines: list[int]) -> None:
    """And who comes there without it is meant to be alone; not so where what ends them is no training."""
    source = START + textwrap.dedent(
        f"""\
        def train():
            {trains}
            if rank != 0:
                sys.exit()
        def main(options):
            if options.train:
                train()
            open("scores.json", "w")
        main(options)
        """
    )
    findings = check({"train.py": source.encode()}, Settings(select=("AR102",))).findings
    assert [one.place.line for one in findings] == lines
