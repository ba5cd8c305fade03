"""What a look at a thread of this process says: its phase, its line, its system call, and for how long."""

from __future__ import annotations

import ast
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from allranks.hang import branches, kernel, messages, stacks
from allranks.hang.heartbeat import Heartbeat
from allranks.hang.sites import Frame, classify_stack, innermost_users_line, stage_of_stack
from allranks.hang.training_thread import TrainingThread
from allranks.world.progress import Progress

PATIENCE = 30.0


@contextmanager
def thread(work: Callable[[], object]) -> Iterator[threading.Thread]:
    """A thread that is at work; whoever enters ends it."""
    one = threading.Thread(target=work, daemon=True)
    one.start()
    yield one
    one.join(PATIENCE)
    assert not one.is_alive()


def until(look: TrainingThread, true: Callable[[Heartbeat], bool]) -> Heartbeat:
    """Look until something is seen."""
    deadline = time.monotonic() + PATIENCE
    while not true(heartbeat := look.heartbeat()):
        assert time.monotonic() < deadline, heartbeat
        time.sleep(0.01)
    return heartbeat


def test_a_thread_that_stands_still_is_seen_at_its_line_and_system_call(tmp_path: Path) -> None:
    """It opens a FIFO that nobody writes to."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)

    def opens() -> None:
        with open(pipe):
            return

    with thread(opens) as one:
        heartbeat = until(TrainingThread(3, thread=one, of=Progress()), lambda heartbeat: heartbeat.still > 0.05)
        assert heartbeat.rank == 3
        assert heartbeat.phase == "python"
        assert heartbeat.where.startswith(f"{stacks.short_path(__file__)}:")
        assert heartbeat.where.endswith(" in opens")
        assert heartbeat.kernel == f"openat({str(pipe)!r})"
        assert heartbeat.alike >= heartbeat.still
        with open(pipe, "w"):
            pass


def test_a_loop_of_equal_calls_is_not_one_long_call() -> None:
    """Every look finds it in the same call, and the kernel knows that it waits again and again."""
    over = threading.Event()

    def loops() -> None:
        while not over.is_set():
            time.sleep(0.002)

    with thread(loops) as one:
        look = TrainingThread(0, thread=one, of=Progress())
        looks = []
        for _ in range(20):
            time.sleep(0.02)
            looks.append(look.heartbeat().still)
        over.set()
    assert max(looks) < 0.2


def test_where_a_thread_stamps_nothing_else_counts() -> None:
    """It polls within a call that is stamped: it is still in that call, since it was entered."""
    over, progress = threading.Event(), Progress()

    def meets() -> None:
        with progress.inside("exchange", "barrier 'a'"):
            while not over.is_set():
                time.sleep(0.002)

    with thread(meets) as one:
        heartbeat = until(TrainingThread(0, thread=one, of=progress), lambda heartbeat: heartbeat.still > 0.1)
        assert (heartbeat.phase, heartbeat.what, heartbeat.order, heartbeat.waits) == (
            "exchange",
            "barrier 'a'",
            1,
            True,
        )
        assert heartbeat.since >= heartbeat.still
        over.set()
    assert progress.last[:2] == ("exchange", "barrier 'a'")
    assert progress.waited > 0.1


def test_what_the_program_says_that_it_does_is_told_and_hides_nothing() -> None:
    """A framework's callback has said "validation": where the thread is, and for how long, is looked at as ever."""
    over, progress = threading.Event(), Progress()

    def validates() -> None:
        progress.doing("validation")
        over.wait()

    with thread(validates) as one:
        heartbeat = until(
            TrainingThread(0, thread=one, of=progress), lambda heartbeat: min(heartbeat.still, heartbeat.alike) > 0.1
        )
        assert (heartbeat.phase, heartbeat.what) == ("python", "validation")
        assert messages.call_of(heartbeat) == "Python (validation)"
        assert heartbeat.where.endswith("in validates")
        over.set()


@pytest.mark.needs("jax")
def test_a_call_of_a_jitted_function_is_known_by_its_name() -> None:
    """It has no Python frame of its own; a lock has none either, and is not taken for one."""
    import jax
    import numpy as np

    slow = jax.jit(lambda x: jax.lax.fori_loop(0, 1000, lambda _, y: jax.numpy.sin(y @ y), x))
    held = threading.Lock()
    ones = np.ones((300, 300))
    slow(ones).block_until_ready()

    def computes() -> None:
        slow(ones).block_until_ready()
        held.acquire()

    with held, thread(computes) as one:
        look = TrainingThread(0, thread=one, of=Progress())
        heartbeat = until(look, lambda heartbeat: heartbeat.phase == "collective" and heartbeat.alike > 0.05)
        assert heartbeat.what in ("slow(ones)", "slow(ones).block_until_ready()")
        assert heartbeat.order == 0
        heartbeat = until(look, lambda heartbeat: heartbeat.phase == "python" and heartbeat.alike > 0.05)
        assert heartbeat.where.endswith("in computes")
        held.release()  # the thread has it now, and the ``with`` lets go of it
        one.join(PATIENCE)


@pytest.mark.parametrize(
    ("file", "function", "phase"),
    [
        ("/v/site-packages/jax/_src/compiler.py", "backend_compile_and_load", "compile"),
        ("/v/site-packages/jax/_src/array.py", "_value", "collective"),
        ("/v/site-packages/jax/_src/distributed.py", "shutdown", "exchange"),
        ("/v/site-packages/torch/distributed/distributed_c10d.py", "all_reduce", "collective"),
        ("/v/site-packages/torch/distributed/checkpoint/state_dict_saver.py", "save", "save"),
        ("/v/site-packages/torch/serialization.py", "_legacy_save", "save"),
        ("/v/site-packages/torch/serialization.py", "load_tensor", "load"),
        ("/v/site-packages/safetensors/torch.py", "save_file", "save"),
        ("/v/site-packages/torch/utils/data/dataloader.py", "_try_get_data", "data"),
        ("/v/site-packages/allranks/world/together.py", "result", "exchange"),
        ("/v/lib/python3.11/threading.py", "wait", "python"),
    ],
)
def test_a_stack_tells_what_a_thread_is_in(file: str, function: str, phase: str) -> None:
    """By the frames inside of the user's own; those outside of it do not count."""
    mine = Frame("train.py", "main", 88, True)
    stack = [Frame("/v/lib/python3.11/queue.py", "get", 1, False), Frame(file, function, 2, False), mine]
    assert classify_stack(stack)[0] == phase
    assert classify_stack([mine, *stack])[0] == "python"
    assert innermost_users_line(stack) == "train.py:88 in main"


@pytest.mark.parametrize(
    ("file", "function", "stage"),
    [
        ("/v/site-packages/lightning/pytorch/loops/evaluation_loop.py", "run", "evaluation"),
        ("/v/site-packages/transformers/trainer.py", "evaluation_loop", "evaluation"),
        ("/v/site-packages/transformers/trainer.py", "train", ""),
        ("/v/site-packages/torch/distributed/checkpoint/state_dict_saver.py", "save", "checkpoint"),
        ("/v/site-packages/orbax/checkpoint/checkpointer.py", "save", "checkpoint"),
        ("/v/site-packages/torch/serialization.py", "<module>", ""),
    ],
)
def test_a_stack_tells_the_stage_of_the_training(file: str, function: str, stage: str) -> None:
    """Also by frames outside of the user's own: an evaluation calls the user's code."""
    mine, library = Frame("train.py", "validation_step", 8, True), Frame(file, function, 2, False)
    assert stage_of_stack([mine, library, Frame("train.py", "main", 88, True)]) == stage
    assert stage_of_stack([mine]) == ""


def test_stacks_begin_at_the_users_code_and_have_its_lines() -> None:
    over = threading.Event()

    def waits() -> None:
        over.wait(PATIENCE)

    with thread(waits) as one:
        look = TrainingThread(0, thread=one, of=Progress())
        until(look, lambda heartbeat: heartbeat.where.endswith("in waits"))
        lines = stacks.format_stack(look.frame()).splitlines()
        assert lines[0].endswith("in waits:  over.wait(PATIENCE)")
        assert "threading.py" in lines[-1]
        assert one.name in stacks.of_others(threading.main_thread().ident or 0)
        over.set()


def test_what_c_has_written_is_read_like_our_own() -> None:
    """The main thread is the last; what started the program is left out."""
    other = 'Thread 0x1 (most recent call first):\n  File "/usr/lib/x.py", line 1 in other\n'
    steps = [f'File "{__file__}", line 7 in inner', f'File "{__file__}", line 9 in outer', 'File "<run>", line 8 in x']
    dump = "\n  ".join([f"Timeout (0:00:02)!\n{other}\nThread 0x2 (most recent call first):", *steps])
    here = stacks.short_path(__file__)
    assert stacks.of_dump(dump) == f"{here}:9 in outer\n{here}:7 in inner"


def test_equal_stacks_are_one() -> None:
    assert stacks.group_equal_stacks({0: "a", 1: "b", 2: "a", 3: "c"}) == [("b", (1,)), ("c", (3,)), ("a", (0, 2))]


def test_the_kernel_knows_the_state_of_a_process() -> None:
    assert kernel.process_state(os.getpid()) == "R"
    assert kernel.process_state(2**22 + 1) == "X"
    assert kernel.system_call(2**22 + 1) == ""


@pytest.mark.parametrize(
    ("condition", "found"),
    [
        ("rank == 0", True), ("world.is_main", True), ("R == 0", True), ("dist.get_rank() == 0", True),
        ("accelerator.is_main_process", True), ("jax.process_index() != 0", True),
        ("step == 0", False), ("frank", False), ("ready", False),
    ],
)  # fmt: skip
def test_a_thread_below_a_condition_on_the_rank_is_known(condition: str, found: bool, tmp_path: Path) -> None:
    """Read off the source: the call itself, or one that leads there; and what is run otherwise."""
    file = tmp_path / "train.py"
    text = f"def evaluate():\n    look()\nif {condition}:\n    evaluate()\nelse:\n    look()\nlook()\n"
    file.write_text(text)
    seen: list[str] = []
    stacks.remember_sources([str(file)])
    names: dict[str, object] = {"look": lambda: seen.append(branches.rank_branch(sys._getframe(1)))}
    for holds in (True, False):
        tree = ast.parse(text)
        tree.body[1].test = ast.copy_location(ast.Constant(holds), tree.body[1].test)  # type: ignore[attr-defined]
        exec(compile(tree, str(file), "exec"), names)
    below = f"if {ast.unparse(ast.parse(condition))} ({stacks.short_path(str(file))}:3)"
    assert seen[0] == (below if found else "")
    assert bool(seen[2]) is found
    assert (seen[1], seen[3]) == ("", "")
