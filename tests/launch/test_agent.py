"""The agent in real ranks: plain Python, torch, and JAX under gloo."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from ranks import AGENT, Outcome, python, run

from allranks.failure import Failure
from allranks.launch.environment import JobLocation, for_rank
from allranks.launch.job import Command, Job, Style
from allranks.launch.placement import Placement

JAX = """
import os, sys, time
import jax, jax.numpy as jnp
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
jax.distributed.initialize()
rank, case, chosen = jax.process_index(), sys.argv[1], sys.argv[2:] == [str(jax.process_index())]
mesh = Mesh(jax.devices(), "x")
add = jax.jit(jax.shard_map(lambda x: jax.lax.psum(x, "x"), mesh=mesh, in_specs=P("x"), out_specs=P()))
ones = jax.make_array_from_callback((len(jax.devices()),), NamedSharding(mesh, P("x")), lambda _: jnp.ones(1))
if case == "leaves first" and chosen:
    sys.exit(0)
for step in range(6):
    if step == 3 and chosen:
        if case == "leaves":
            sys.exit(0)
        if case == "raises":
            raise ValueError("bad row")
        if case == "shuts down":
            try:
                raise ValueError("bad row")
            finally:
                jax.distributed.shutdown()
    total = add(ones)
print(int(total[0]), flush=True)
if case == "skew" and rank == 0:
    time.sleep(2)
    print("alone", float(jnp.ones(3).sum()))
if case == "drop" and rank == 0:
    time.sleep(2)
if case == "drop":
    totals = [add(ones) for _ in range(20)]
    if rank == 0:
        print("all arrived", int(sum(totals)[0]))
    del totals
"""


def jax_job(tmp_path: Path, case: str, *, chosen: int = 99, ranks: int = 2, devices: int = 1) -> Outcome:
    return run(Job(python(tmp_path, JAX, case, str(chosen)), ranks, devices=devices), tmp_path)


def line_of(statement: str) -> str:
    """Where a statement of JAX stands (the last of its kind)."""
    return f"train.py:{JAX[: JAX.rindex(statement)].count(chr(10)) + 1}"


def script(tmp_path: Path, program: str, *, ranks: int = 1) -> Outcome:
    return run(Job(python(tmp_path, program), ranks), tmp_path)


# ---- what the launcher hears, with no framework


def test_an_exception_is_reported_with_its_place_and_shown_as_ever(tmp_path: Path) -> None:
    """The datagram is a Failure; `where` is the user's innermost line, not the library's below it."""
    outcome = script(tmp_path, "import json\ndef load():\n    json.loads('{')\nload()\n")
    failure = Failure(**outcome.failure(0))
    assert (failure.where, failure.exit_code, failure.thread) == ("train.py:3", 1, "")
    assert failure.headline().startswith("rank 0 (host hosta) failed at train.py:3: json.decoder.JSONDecodeError: Expe")
    assert failure.traceback == outcome.err[0]
    assert [m["kind"] for m in outcome.said] == ["started", "failed"]
    assert outcome.codes == [1]


@pytest.mark.parametrize(
    ("program", "code", "what", "where"),
    [
        ("import sys\ndef stop():\n    sys.exit(3)\nstop()", 3, "left with exit code 3", "train.py:3"),
        ("import sys\nsys.exit('no data')", 1, "left with exit code 1: no data", "train.py:2"),
        ("def work():\n    exec('{}[1]')\nwork()", 1, "KeyError: 1", "train.py:2"),
        ("exit(256 + 4)", 4, "left with exit code 4", "train.py:1"),
        ("raise KeyboardInterrupt", 130, "KeyboardInterrupt", "train.py:1"),
        ("x = 1\nif x\n", 1, "SyntaxError: expected ':'", "train.py:2"),
        ("import sys\nsys.excepthook = lambda *_: None\n1 / 0", 1, "ZeroDivisionError: division by zero", "train.py:3"),
    ],
)
def test_every_end_but_a_good_one_is_a_failure(tmp_path: Path, program: str, code: int, what: str, where: str) -> None:
    """Whatever ended the program, and whatever hook the program has set."""
    outcome = script(tmp_path, program)
    failure = outcome.failure(0)
    assert (failure["exit_code"], failure["what"], failure["where"]) == (code, what, where)
    assert outcome.codes == [code]
    assert not outcome.of("left")


@pytest.mark.parametrize(
    "program",
    [
        "",
        "import sys\nsys.exit()",
        "import sys\ntry:\n    sys.exit(3)\nexcept SystemExit:\n    pass",
        "import sys, threading\nthread = threading.Thread(target=sys.exit, args=(3,))\nthread.start()\nthread.join()",
        "import subprocess, sys\nsubprocess.run([sys.executable, '-c', 'raise SystemExit(1 / 0)'])",
        "import os, sys\nif os.fork() == 0:\n    sys.exit(3)\nos.wait()",
        "import multiprocessing as m\nchild = m.get_context('fork').Process(target=print)\nchild.start(), child.join()",
    ],
    ids=["falls off", "exit()", "caught", "thread's exit", "child", "forked child", "worker"],
)
def test_a_good_end_is_told_as_one(tmp_path: Path, program: str) -> None:
    """A SystemExit that was caught, a thread that stops itself and a failing child process are no end of the rank."""
    outcome = script(tmp_path, program)
    assert [m["kind"] for m in outcome.said] == ["started", "left"]
    assert outcome.said[-1]["exit_code"] == 0
    assert outcome.codes == [0]


def test_an_exception_in_a_thread_is_told_while_the_main_thread_works_on(tmp_path: Path) -> None:
    """The failure names the thread, although the program has replaced threading.excepthook."""
    program = """
import threading, time
threading.excepthook = lambda args: print("mine", args.exc_value)
def read():
    raise OSError("disk gone")
threading.Thread(target=read, name="prefetch").start()
time.sleep(60)
"""
    outcome = script(tmp_path, program)
    failure = outcome.failure(0)
    assert (failure["thread"], failure["what"], failure["where"]) == ("prefetch", "OSError: disk gone", "train.py:5")
    assert outcome.out == ["mine disk gone\n"]
    assert outcome.seconds < 30


def test_a_failed_rank_ends_in_order_but_waits_for_no_thread(tmp_path: Path) -> None:
    """Its atexit functions run and its files are flushed; a thread that never ends does not keep it."""
    program = """
import atexit, threading
log = open("log", "w")
log.write("last words")
atexit.register(print, "cleaned up")
threading.Thread(target=threading.Event().wait).start()
raise ValueError("bad row")
"""
    outcome = script(tmp_path, program)
    assert outcome.codes == [1]
    assert outcome.out == ["cleaned up\n"]
    assert (tmp_path / "log").read_text() == "last words"


def test_the_next_sitecustomize_runs_too(tmp_path: Path) -> None:
    """We stand in front of the user's sitecustomize; its exception is shown, and costs neither program nor agent."""
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text("print('theirs', flush=True)\nraise ValueError('in theirs')")
    base = {"PYTHONPATH": str(tmp_path / "site")}
    outcome = run(Job(python(tmp_path, "print('program')"), 1), tmp_path, base=base)
    assert outcome.out == ["theirs\nprogram\n"]
    assert "ValueError: in theirs" in outcome.err[0]
    assert [m["kind"] for m in outcome.said] == ["started", "left"]


def test_python_below_a_shell_is_the_rank(tmp_path: Path) -> None:
    """Any command that ends in Python works, with several in turn."""
    (tmp_path / "train.py").write_text("raise ValueError('bad row')")
    outcome = run(Job(Command(("sh", "-c", f"{sys.executable} -c pass && {sys.executable} train.py")), 1), tmp_path)
    assert [m["kind"] for m in outcome.said] == ["started", "left", "started", "failed"]
    assert outcome.failure(0)["where"] == "train.py:1"


def test_a_rank_dies_with_its_parent(tmp_path: Path) -> None:
    """SIGKILL of the process that started it leaves no orphan: the pipe that the rank alone still holds closes."""
    program = "import os, time; os.write(1, b'up'); time.sleep(60)"
    site = JobLocation(
        "job-1", Placement(("hosta",), (1,)), "127.0.0.1", 1, 2, 2, str(tmp_path / "control"), str(AGENT), os.environ
    )
    environment = for_rank(Job(("sh",), 1), 0, site)
    command = ["sh", "-c", f'{sys.executable} -c "{program}" & wait']
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        assert parent.stdout.read(2) == b"up"
        killed = time.monotonic()
        parent.kill()
        assert parent.stdout.read() == b""
    assert parent.returncode == -signal.SIGKILL
    assert time.monotonic() - killed < 30


def test_without_a_launcher_nothing_happens() -> None:
    """Our folder on the path of an ordinary Python loads no agent."""
    program = "import sys; print([name for name in sys.modules if 'allranks' in name])"
    environment = {"PYTHONPATH": str(AGENT)}
    assert subprocess.check_output([sys.executable, "-c", program], env=environment, text=True) == "[]\n"


def test_a_forked_rank_reports_like_a_spawned_one(tmp_path: Path) -> None:
    """`activate` and `run` in a forked child: a bare SystemExit's code is known, and a good end runs to its end."""
    zygote = """
import os, runpy, sys
import allranks_agent
for name in ("good", "bad"):
    if os.fork() == 0:
        allranks_agent.activate({**os.environ, "ALLRANKS_CONTROL": sys.argv[1]})
        allranks_agent.run(lambda: runpy.run_path(name + ".py", run_name="__main__"))
    print(os.waitstatus_to_exitcode(os.wait()[1]), flush=True)
"""
    (tmp_path / "good.py").write_text("import atexit\natexit.register(print, 'at exit', flush=True)\nprint('good')")
    (tmp_path / "bad.py").write_text("def main():\n    return 5\nraise SystemExit(main())")
    command = Command(("env", "-u", "ALLRANKS_CONTROL", *python(tmp_path, zygote, str(tmp_path / "control")).arguments))
    outcome = run(Job(command, 1), tmp_path)
    assert [m["kind"] for m in outcome.said] == ["started", "left", "started", "failed"]
    assert outcome.failure(0)["what"] == "left with exit code 5"
    assert outcome.failure(0)["where"] == "bad.py:3"
    assert outcome.out[0].split("\n") == ["good", "at exit", "0", "5", ""]


# ---- ends that Python does not announce: what is told before the sockets close decides who was first


@pytest.mark.parametrize(
    ("program", "code", "what", "where"),
    [
        pytest.param(
            "import os, sys\nsys.excepthook = lambda *_: os._exit(7)\n1 / 0",
            7,
            "left with exit code 7 after ZeroDivisionError: division by zero",
            "train.py:3",
            id="a hook that ends the process",
        ),
        pytest.param("import os\nos._exit(7)", 7, "left with exit code 7", "train.py:2", id="os._exit"),
        pytest.param(
            "import os\ntry:\n    1 / 0\nexcept ArithmeticError:\n    os._exit(7)",
            7,
            "left with exit code 7 after ZeroDivisionError: division by zero",
            "train.py:3",
            id="os._exit in a handler",
        ),
        pytest.param(
            "import os, threading\nthreading.excepthook = lambda _: os._exit(7)\n"
            "thread = threading.Thread(target=lambda: 1 / 0)\nthread.start()\nthread.join()",
            7,
            "left with exit code 7 after ZeroDivisionError: division by zero",
            "train.py:3",
            id="a thread's hook",
        ),
        pytest.param(
            "import os\nos.abort()", -6, "killed by SIGABRT: os.abort() was called", "train.py:2", id="os.abort"
        ),
    ],
)
def test_who_ends_at_once_has_told_before(tmp_path: Path, program: str, code: int, what: str, where: str) -> None:
    """In one message, with the line; the launcher then sees the process end."""
    outcome = script(tmp_path, program)
    [message] = [m for m in outcome.said if m["kind"] in ("failing", "exiting")]
    failure = message["failure"]
    assert (failure["what"], failure["where"]) == (what, where)
    assert outcome.codes == [code]
    assert not outcome.of("failed")


def test_os_exit_with_0_is_told_as_a_good_end_with_its_line(tmp_path: Path) -> None:
    outcome = script(tmp_path, "import os\nos._exit(0)")
    assert [(m["kind"], m.get("failure"), m.get("where")) for m in outcome.said[1:]] == [
        ("exiting", None, "train.py:2")
    ]


def test_a_child_that_ends_at_once_is_not_the_rank(tmp_path: Path) -> None:
    """os._exit in a forked child is how multiprocessing ends its workers."""
    outcome = script(tmp_path, "import os\nif os.fork() == 0:\n    os._exit(3)\nos.wait()")
    assert [m["kind"] for m in outcome.said] == ["started", "left"]


@pytest.mark.parametrize("leave", ["sys.exit(1)", "sys.exit(True)", "exit(1)"])
def test_who_catches_an_error_and_leaves_has_failed_where_it_was_raised(tmp_path: Path, leave: str) -> None:
    """Also in a function that handlers call; the traceback is the error's."""
    program = f"import sys\ndef bail():\n    {leave}\ntry:\n    1 / 0\nexcept ArithmeticError:\n    bail()"
    failure = script(tmp_path, program).failure(0)
    assert failure["what"] == "left with exit code 1 after ZeroDivisionError: division by zero"
    assert failure["where"] == "train.py:5"
    assert failure["traceback"].endswith("ZeroDivisionError: division by zero\n")
    assert failure["before"] == "ZeroDivisionError: division by zero"


ODD = [
    (
        "class E(Exception):\n    def __str__(self):\n        raise RuntimeError('no')\nraise E",
        "E: (its __str__ raises)",
    ),
    ("class E(Exception):\n    def __str__(self):\n        return 3\nraise E", "E: (its __str__ raises)"),
    ("raise ValueError('gr\\u00f6\\u00dfe \\udcff \\x1b[31m')", "ValueError: gr\u00f6\u00dfe \\udcff \\x1b[31m"),
    ("raise ValueError('y' * 3_000_000)", f"ValueError: {'y' * 988}... (3000012 characters)"),
    ("raise ValueError('\\x00' * 300_000)", None),
    ("raise ValueError('\\U0001f4a5' * 300_000)", None),
    ("raise type('Bad\\nName', (Exception,), {})('x')", "Bad\\nName: x"),
    (
        "raise ExceptionGroup('all', [ValueError('a'), KeyError(1)])",
        "ExceptionGroup: all (2 sub-exceptions): ValueError: a",
    ),
    ("class B(BaseException): pass\nraise B('base')", "B: base"),
    ("raise GeneratorExit('g')", "GeneratorExit: g"),
    ("raise KeyError", "KeyError"),
    ("def r(n): return r(n + 1)\nr(0)", None),
    ("raise ValueError('a\\nb')", "ValueError: a"),
    (
        "import sys\nclass S:\n    def __str__(self):\n        raise ValueError\nsys.exit(S())",
        "left with exit code 1: (its __str__ raises)",
    ),
]


@pytest.mark.parametrize(("program", "what"), ODD)
def test_the_oddest_exception_is_told_with_its_own_traceback(tmp_path: Path, program: str, what: str | None) -> None:
    """One printable line, its line in the program, and a traceback that a datagram holds."""
    outcome = script(tmp_path, program)
    failure = outcome.failure(0)
    assert what is None or failure["what"] == what
    assert failure["where"].startswith("train.py:")
    assert failure["what"].isprintable()
    assert len(failure["traceback"].encode()) < 40_000
    assert "allranks" not in failure["traceback"]
    assert outcome.codes == [failure["exit_code"]]


# ---- torch


@pytest.mark.needs("torch")
def test_torch_joins_and_fails_fast(tmp_path: Path) -> None:
    """init_process_group is told; a rank that ends early closes its sockets, and its peer raises."""
    program = """
import torch, torch.distributed as dist
dist.init_process_group("gloo")
for step in range(4):
    if step == 2 and dist.get_rank() == 1:
        break
    dist.all_reduce(torch.ones(1))
"""
    outcome = script(tmp_path, program, ranks=2)
    assert [m["backend"] for m in outcome.of("joining") + outcome.of("joined")] == ["torch"] * 4
    assert outcome.of("left", 1)
    assert outcome.failure(0)["where"] == "train.py:7"
    assert outcome.codes[0] == 1


# ---- JAX


@pytest.mark.needs("jax")
def test_jax_joins_without_arguments(tmp_path: Path) -> None:
    """A bare initialize() makes the world; ranks that end seconds apart end well."""
    outcome = jax_job(tmp_path, "skew", ranks=2, devices=2)
    assert outcome.codes == [0, 0]
    assert [out.splitlines()[-1] for out in outcome.out] == ["alone 3.0", "4"]
    assert {(m["rank"], m["kind"]) for m in outcome.said} == {
        (rank, kind) for rank in (0, 1) for kind in ("started", "joining", "joined", "left")
    }


@pytest.mark.needs("jax")
@pytest.mark.parametrize("devices", [pytest.param(1, marks=pytest.mark.soak), 2])  # of 2, steps run behind the program
def test_a_rank_that_ends_finishes_what_it_dispatched(tmp_path: Path, devices: int) -> None:
    """Collectives whose results nobody keeps still run to their end, seconds later, before the connections close."""
    outcome = jax_job(tmp_path, "drop", devices=devices)
    assert outcome.out[0].splitlines()[-1] == f"all arrived {20 * 2 * devices}"
    assert outcome.codes == [0, 0]
    assert not outcome.of("failed")


@pytest.mark.needs("jax")
@pytest.mark.parametrize(
    ("case", "chosen"),
    [
        pytest.param("leaves", 1, marks=pytest.mark.soak),
        ("leaves", 0),
        ("leaves first", 0),
    ],  # 1: see test_forked_rank.py
)
def test_nobody_waits_for_a_rank_that_left_early(tmp_path: Path, case: str, chosen: int) -> None:
    """Peers raise at once, in the middle of the loop as before the first collective; plain JAX hangs for 300 s."""
    outcome = jax_job(tmp_path, case, chosen=chosen, ranks=3)
    left = outcome.of("left", chosen)[0]["time"]
    first = outcome.of("failed")[0]
    assert first["rank"] != chosen
    assert first["failure"]["where"] == line_of("total = add(ones)\nprint")
    assert "Gloo" in first["failure"]["what"]
    assert first["time"] - left < 10


@pytest.mark.needs("jax")
def test_nobody_waits_for_the_devices_of_a_rank_that_left(tmp_path: Path) -> None:
    """A rank that leaves before it has touched a device fails its peers where they ask for theirs."""
    program = """
import sys, jax
jax.distributed.initialize()
if jax._src.distributed.global_state.process_id == 1:
    sys.exit(0)
jax.devices()
"""
    outcome = script(tmp_path, program, ranks=2)
    assert outcome.failure(0)["where"] == "train.py:6"


@pytest.mark.needs("jax")
def test_a_computation_that_fails_after_the_end_fails_the_rank(tmp_path: Path) -> None:
    """With two devices the steps run behind the program: rank 1 has ended when its last steps fail, and says so."""
    outcome = jax_job(tmp_path, "leaves", chosen=0, devices=2)
    assert outcome.failure(1)["exit_code"] == 1
    assert "Gloo" in outcome.failure(1)["what"]


@pytest.mark.needs("jax")
def test_an_exception_in_one_rank_is_the_first_failure(tmp_path: Path) -> None:
    """The rank that raised reports first and ends with 1, at once, not after JAX's shutdown barrier."""
    outcome = jax_job(tmp_path, "raises", chosen=1)
    first = outcome.of("failed")[0]["failure"]
    assert (first["rank"], first["what"], first["where"]) == (
        1,
        "ValueError: bad row",
        line_of('raise ValueError("bad row")\n        if case'),
    )
    assert outcome.codes[1] == 1


@pytest.mark.needs("jax")
def test_a_shutdown_in_a_finally_does_not_hide_the_exception(tmp_path: Path) -> None:
    """`finally: jax.distributed.shutdown()` blocks the failing rank; it has said why, and its peer fails."""
    outcome = jax_job(tmp_path, "shuts down", chosen=1)
    [leaving] = [m for m in outcome.of("leaving", 1) if m["failure"]]
    assert leaving["failure"]["where"] == line_of("raise ValueError")
    assert outcome.of("failed", 0)[0]["time"] >= leaving["time"]


@pytest.mark.needs("jax")
@pytest.mark.parametrize("style", ["slurm", "ompi"])
def test_jax_itself_detects_an_emulated_launcher(tmp_path: Path, style: Style) -> None:
    """With `--as` nothing is injected: JAX's own cluster detection reads the variables."""
    program = """
import jax
jax.distributed.initialize(cluster_detection_method=None)
print(jax.process_count(), [c.name for c in jax._src.clusters.ClusterEnv._cluster_types if c.name == "allranks"])
"""
    outcome = run(Job(python(tmp_path, program), 2, style=style), tmp_path)
    assert outcome.out == ["2 []\n", "2 []\n"]
    assert outcome.codes == [0, 0]


@pytest.mark.soak  # as test_unawaited.py shows of the whole launcher
@pytest.mark.needs("jax")
def test_steps_that_nobody_awaits_do_not_deadlock(tmp_path: Path) -> None:
    """300 collective steps in flight on two devices of one process; with XLA's default pool on two cores they hang."""
    program = """
import jax, jax.numpy as jnp
step = jax.pmap(lambda x: jax.lax.psum(x, "d") / 2, axis_name="d")
x = jnp.ones(2)
for _ in range(300):
    x = step(x)
print(float(x[0]))
"""
    outcome = run(Job(python(tmp_path, program), 1, devices=2), tmp_path)
    assert outcome.out == ["1.0\n"]
