"""``allranks run`` with real processes: how jobs end, and that nothing of them is left."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from jobs import Started, allranks, is_alive, pids_in, wait_until, write

# Every rank leaves its pid, and that of a child in a session of its own; then rank 1 does what the test is about.
FAMILY = """\
import os, pathlib, subprocess, sys, threading, time
rank = int(os.environ["ALLRANKS_RANK"])
child = subprocess.Popen(["sleep", "1000"], start_new_session=True)
for pid in (os.getpid(), child.pid):
    pathlib.Path("pids", str(pid)).touch()
while len(os.listdir("pids")) < 2 * int(os.environ["ALLRANKS_SIZE"]):
    time.sleep(0.01)

def end():
    {end}

if rank == 1:
    end()
time.sleep(1000)
"""
LINE = "train.py:10"
SPAWN = [pytest.param((), id="zygote"), pytest.param(("--no-zygote",), id="spawn")]


def family(folder: Path, end: str = "pass") -> str:
    (folder / "pids").mkdir()
    return write(folder, FAMILY.format(end=end))


def assert_gone(folder: Path, ranks: int) -> None:
    pids = pids_in(folder)
    assert len(pids) == 2 * ranks
    wait_until(lambda: not any(map(is_alive, pids)), "processes of the job are left")


def headline(out: str) -> str:
    return next(line for line in out.splitlines() if line.startswith("first failure: "))


def test_a_job_runs_its_ranks_and_returns_0(tmp_path: Path) -> None:
    script = write(
        tmp_path, "import os, sys; print('rank', os.environ['RANK'], 'of', os.environ['WORLD_SIZE'], sys.argv)"
    )
    done = allranks("-n", "3", script, "--steps", "5", cwd=tmp_path)
    assert done.code == 0
    for rank in range(3):
        assert f"rank {rank} of 3 ['train.py', '--steps', '5']" in done.out
    assert "exit code 0 after" in done.out


def test_a_variable_that_nothing_reads_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With what would be read; one that the program reads is not."""
    monkeypatch.setenv("XLA_RENDEZVOUS_WAIT_SECONDS", "60")
    monkeypatch.setenv("TORCH_OF_MINE", "1")
    done = allranks("-n", "1", write(tmp_path, "import os; os.environ['TORCH_OF_MINE']"), cwd=tmp_path)
    assert done.code == 0
    assert done.out.count("allranks: nothing reads XLA_RENDEZVOUS_WAIT_SECONDS (") == 1
    assert "--rendezvous-timeout S sets the real flags" in done.out


@pytest.mark.parametrize("how", SPAWN)
@pytest.mark.parametrize(
    ("end", "code", "says"),
    [
        pytest.param("raise ValueError('bad row')", 1, f"at {LINE}: ValueError: bad row", id="raises"),
        pytest.param(
            "threading.Thread(target=lambda: 1 / 0, name='prefetch').start()",
            1,
            f"at {LINE} in thread 'prefetch': ZeroDivisionError: division by zero",
            id="raises in a thread",
        ),
        pytest.param("sys.exit(3)", 3, f"at {LINE}: left with exit code 3", id="sys.exit"),
        pytest.param("sys.exit('no data')", 1, f"at {LINE}: left with exit code 1: no data", id="sys.exit with words"),
        pytest.param("os.kill(os.getpid(), 9)", 137, "killed by SIGKILL", id="SIGKILL"),
        pytest.param("os._exit(7)", 7, "exit code 7", id="os._exit"),
        pytest.param("os.abort()", 134, "killed by SIGABRT", id="abort"),
        pytest.param(
            "import resource; resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30)); bytearray(1 << 34)",
            1,
            f"at {LINE}: MemoryError",
            id="memory",
        ),
    ],
)
def test_the_end_of_one_rank_is_the_end_of_the_job(
    tmp_path: Path, end: str, code: int, says: str, how: tuple[str, ...]
) -> None:
    """With its exit code and its line on top, and no process left, not even a grandchild."""
    done = allranks("-n", "2", *how, family(tmp_path, end), cwd=tmp_path)
    assert done.code == code
    assert "rank 1 " in headline(done.out)
    assert says in headline(done.out)
    assert "consequences: rank 0: stopped by allranks" in done.out
    assert_gone(tmp_path, 2)


@pytest.mark.parametrize("how", SPAWN)
def test_an_exception_is_shown_as_python_shows_it(tmp_path: Path, how: tuple[str, ...]) -> None:
    """No frame of ours in it."""
    script = write(tmp_path, "def f():\n    raise KeyError('x')\n\nf()\n")
    done = allranks("-n", "1", *how, script, cwd=tmp_path)
    expected = f'Traceback (most recent call last):\n  File "{tmp_path}/train.py", line 4, in <module>\n    f()\n'
    assert expected in done.out
    assert "allranks/launch" not in done.out


def test_a_rank_that_exits_while_another_waits_to_join_has_left_early(tmp_path: Path) -> None:
    script = write(
        tmp_path,
        """
        import os, time, allranks_agent
        if os.environ["RANK"] == "0":
            allranks_agent.report("joining", backend="torch")
            time.sleep(1000)
        """,
    )
    done = allranks("-n", "2", script, cwd=tmp_path)
    assert done.code == 1
    assert "rank 1 (host" in headline(done.out)
    assert "left early (exit code 0) while rank 0 waits for it to join the world" in headline(done.out)


def test_the_last_lines_of_a_rank_that_died_without_a_word_are_shown(tmp_path: Path) -> None:
    """Not again where nothing but them was shown just before."""
    lines = "for i in range(30): print('line', os.environ['RANK'], i)"
    more = "if os.environ['RANK'] == '1': time.sleep(0.5); [print('more', i) for i in range(100)]"
    write(tmp_path, f"import os, time\n{lines}\n{more}\nelse: time.sleep(1.5); os.kill(os.getpid(), 9)\n")
    done = allranks("-n", "2", "train.py", cwd=tmp_path)
    end = done.out[done.out.index("first failure: ") :]
    assert "    line 0 29" in end
    assert "    line 0 9\n" not in end
    done = allranks("-n", "1", "train.py", cwd=tmp_path)
    assert done.out.count("line 0 29") == 1


def test_ctrl_c_lets_the_ranks_clean_up(tmp_path: Path) -> None:
    script = write(
        tmp_path,
        """
        import os, pathlib, time
        rank = os.environ["RANK"]
        try:
            pathlib.Path("ready" + rank).touch()
            time.sleep(1000)
        except KeyboardInterrupt:
            pathlib.Path("clean" + rank).touch()
        """,
    )
    with Started("-n", "2", script, cwd=tmp_path) as job:
        wait_until(lambda: len([*tmp_path.glob("ready*")]) == 2, "the ranks have not started")
        job.send(signal.SIGINT)
        assert job.end() == 130
    assert len([*tmp_path.glob("clean*")]) == 2
    assert "Ctrl-C again to kill at once" in job.out
    assert "job interrupted by Ctrl-C" in job.out


def test_ctrl_c_is_answered_while_the_frameworks_are_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stand-in for a framework on a cold disk."""
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "installed"), prepend=os.pathsep)
    stand_in = "import pathlib, time\npathlib.Path('importing').touch()\ntime.sleep(1000)"
    write(tmp_path, stand_in, "installed/tqdm.py")
    with Started("-n", "2", "--grace", "3600", write(tmp_path, "import tqdm"), cwd=tmp_path) as job:
        wait_until((tmp_path / "importing").exists, "the import has not begun")
        job.send(signal.SIGINT)
        assert job.end() == 130


DEAF = """\
import os, pathlib, signal, time
for signum in (signal.SIGINT, signal.SIGTERM):
    signal.signal(signum, lambda *_: pathlib.Path("heard").touch())
pathlib.Path("ready").touch()
while True:
    time.sleep(1000)
"""


def test_a_second_ctrl_c_kills_at_once(tmp_path: Path) -> None:
    """The grace of an hour is not waited for."""
    with Started("-n", "1", "--grace", "3600", write(tmp_path, DEAF), cwd=tmp_path) as job:
        wait_until((tmp_path / "ready").exists, "the rank has not started")
        job.send(signal.SIGINT)
        wait_until((tmp_path / "heard").exists, "the rank has not heard of it")
        job.send(signal.SIGINT)
        assert job.end() == 130


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGHUP])
def test_sigterm_ends_the_job_after_the_grace(tmp_path: Path, signum: int) -> None:
    """The code is that of ranks that were killed; SIGHUP is the same wish."""
    with Started("-n", "1", "--grace", "0.2", write(tmp_path, DEAF), cwd=tmp_path) as job:
        wait_until((tmp_path / "ready").exists, "the rank has not started")
        job.send(signum)
        assert job.end() == 137
    said = f"job stopped by {signal.Signals(signum).name}; rank 0 was killed when the grace of 0.2 s was over"
    assert said in job.out


def test_the_time_limit_ends_the_job_with_124(tmp_path: Path) -> None:
    done = allranks("-n", "2", "--timeout", "0.5", write(tmp_path, "import time; time.sleep(1000)"), cwd=tmp_path)
    assert done.code == 124
    assert "stopped at the time limit of 0.5 s" in done.out


@pytest.mark.parametrize("how", SPAWN)
def test_no_process_survives_a_launcher_that_is_killed(tmp_path: Path, how: tuple[str, ...]) -> None:
    with Started("-n", "2", *how, family(tmp_path), cwd=tmp_path) as job:
        wait_until(lambda: len(pids_in(tmp_path)) == 4, "the ranks have not started")
        job.send(signal.SIGKILL)
        assert_gone(tmp_path, 2)


def test_no_rank_survives_a_fork_server_that_is_killed(tmp_path: Path) -> None:
    """And the launcher says so. (What ranks have put into sessions of their own is then beyond anyone's reach.)"""
    script = write(
        tmp_path,
        """
        import os, pathlib, subprocess, time
        child = subprocess.Popen(["sleep", "1000"])
        pathlib.Path("pids").mkdir(exist_ok=True)
        for pid in (os.getpid(), child.pid):
            pathlib.Path("pids", str(pid)).touch()
        pathlib.Path("server").write_text(str(os.getppid()))
        time.sleep(1000)
        """,
    )
    with Started("-n", "2", script, cwd=tmp_path) as job:
        wait_until(lambda: len(pids_in(tmp_path)) == 4, "the ranks have not started")
        os.kill(int((tmp_path / "server").read_text()), signal.SIGKILL)
        assert job.end() == 137
        assert_gone(tmp_path, 2)
    assert "the process that keeps the ranks was killed" in job.out


@pytest.mark.parametrize("words", [(), ("bash", "-c", "python train.py; exit $?")], ids=["script", "shell"])
def test_sigterm_to_every_process_is_for_the_ranks(tmp_path: Path, words: tuple[str, ...]) -> None:
    """Launcher and fork server survive it, as Slurm and systemd send it; the launcher's own is not for children."""
    script = write(
        tmp_path,
        """
        import os, pathlib, signal, subprocess, sys, time
        child = subprocess.Popen(["sleep", "1000"])
        def leave(*_):
            assert child.poll() is None
            pathlib.Path("saved").touch()
            sys.exit(0)
        signal.signal(signal.SIGTERM, leave)
        pathlib.Path("server.tmp").write_text(str(os.getppid()))
        pathlib.Path("server.tmp").rename("server")
        time.sleep(1000)
        """,
    )
    with Started("-n", "1", *(words or (script,)), cwd=tmp_path) as job:
        wait_until((tmp_path / "server").exists, "the rank has not started")
        if not words:
            os.kill(int((tmp_path / "server").read_text()), signal.SIGTERM)
        job.send(signal.SIGTERM)
        assert job.end() == 143
    assert (tmp_path / "saved").exists()


def test_what_a_rank_leaves_behind_ends_with_the_job(tmp_path: Path) -> None:
    """A daemon in a session of its own, whose parent is gone."""
    script = write(
        tmp_path,
        """
        import os, pathlib, subprocess
        pathlib.Path("pids").mkdir(exist_ok=True)
        pid = subprocess.run(["setsid", "sh", "-c", "sleep 1000 > /dev/null & echo $!"], stdout=-1, text=True).stdout
        pathlib.Path("pids", pid.strip()).touch()
        """,
    )
    done = allranks("-n", "1", script, cwd=tmp_path)
    assert done.code == 0
    (pid,) = pids_in(tmp_path)
    assert not is_alive(pid)


def test_any_command_can_be_a_rank(tmp_path: Path) -> None:
    """The Python at its end still speaks for the rank."""
    script = write(
        tmp_path, "import os\nif os.environ['RANK'] == '1': raise ValueError('bad row')\nimport time; time.sleep(99)"
    )
    done = allranks("-n", "2", "--", "sh", "-c", f"echo shell; python3 {script}; exit $?", cwd=tmp_path)
    assert done.code == 1
    assert "shell" in done.out
    assert "rank 1 " in headline(done.out)
    assert "ValueError: bad row" in headline(done.out)


def test_a_script_that_is_closed_by_its_reader_ends(tmp_path: Path) -> None:
    """``allranks run ... | head -1``: nobody reads on, so the job is over."""
    script = write(tmp_path, "import itertools\nfor i in itertools.count(): print(i)\n")
    done = allranks("-n", "2", script, cwd=tmp_path, through="head -1")
    assert done.code == 141
