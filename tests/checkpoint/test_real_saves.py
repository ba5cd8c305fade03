"""Saves of four real ranks: one is killed, stands still, has a full disk or a read-only one; and two jobs at once."""

from __future__ import annotations

import importlib
import subprocess
from pathlib import Path

import harness
import pytest

from allranks.checkpoint import inventory
from allranks.storage.local import LocalStorage

PROGRAM = Path(__file__).parent / "programs" / "real_saves.py"
UNCLOSED = Path(__file__).parent / "programs" / "ends_unclosed.py"


def tell(folder: Path, *stories: str, patience: float = 120.0) -> str:
    done = harness.run(1, [str(PROGRAM), str(folder), *stories], environ=lambda *_: {}, patience=patience)
    print(done)
    assert done.codes == [0]
    return done.ranks[0].out


def may_mount(folder: Path) -> bool:
    if subprocess.run(["mount", "-t", "tmpfs", "none", str(folder)], check=False, capture_output=True).returncode:
        return False
    subprocess.run(["umount", str(folder)], check=True)
    return True


@pytest.mark.needs("torch")
def test_survivors_of_a_killed_rank_agree_and_the_newest_step_restores(tmp_path: Path) -> None:
    """SIGKILL of a random rank at a random moment; job after job in one directory, nothing tidied up between."""
    tell(tmp_path, "killed:3:1")


@pytest.mark.soak
@pytest.mark.needs("torch")
def test_so_it_is_after_200_kills(tmp_path: Path) -> None:
    tell(tmp_path, "killed:200:2", patience=3600)


@pytest.mark.needs("torch")
def test_a_rank_that_stands_still_is_named_and_takes_part_in_the_next_save(tmp_path: Path) -> None:
    assert "rank 2: no report within 2 s" in tell(tmp_path, "stopped")


@pytest.mark.needs("torch")
def test_a_full_or_read_only_disk_of_some_ranks_stops_the_save_on_all(tmp_path: Path) -> None:
    """Nothing is published, and the next save succeeds once there is room again."""
    if not may_mount(tmp_path):
        pytest.skip("this user has no permission mount a file system of its own")
    said = tell(tmp_path, "full", "read_only")
    assert "ENOSPC" in said
    assert "EROFS" in said


def test_two_jobs_in_one_directory_do_each_other_no_harm(tmp_path: Path) -> None:
    """The second is refused while the first lives, not after it was killed; one that takes over fences the first."""
    tell(tmp_path, "two_jobs", "restarted")


@pytest.mark.needs("torch")
def test_a_save_that_goes_on_at_the_end_of_the_program_is_finished(tmp_path: Path) -> None:
    """Without close() or wait(): no rank takes another for gone while that one still saves."""
    job = harness.run(2, [str(UNCLOSED), str(tmp_path)])
    assert job.codes == [0, 0], job
    assert inventory.complete_steps(LocalStorage(tmp_path)) == (5,)


@pytest.mark.needs("torch")
def test_a_save_that_fails_at_the_end_of_the_program_fails_the_job(tmp_path: Path) -> None:
    job = harness.run(2, [str(UNCLOSED), str(tmp_path), "broken"])
    assert job.codes == [1, 1], job
    assert "SaveFailed" in job.ranks[0].err
    assert "the disk is gone" in job.ranks[0].err


@pytest.mark.parametrize(
    "third", [["SaveFailed", 5, "another reason"], ["RankDied", 6, "rank 1"]], ids=["words", "disagree"]
)
def test_survivors_that_disagree_are_found_out(third: list[object], monkeypatch: pytest.MonkeyPatch) -> None:
    """So that the tests of the killed can fail."""
    monkeypatch.syspath_prepend(str(PROGRAM.parent))
    judge = importlib.import_module("real_saves").judge
    begun, failed = [0.0, "begun", 4], [0.0, "SaveFailed", 5, "rank 1 is dead"]
    fourth = [begun, [0.0, *third]]
    if third[0] == "RankDied":
        fourth.insert(1, [0.0, "committed", 5])
    with pytest.raises(AssertionError):
        judge([[begun, failed], [begun], [begun, failed], fourth], victim=1, least=0, run_folder=PROGRAM)
