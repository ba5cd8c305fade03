"""How public programs are fetched, and what the table says of a report."""

from __future__ import annotations

import subprocess
from pathlib import Path

from bench.projects.__main__ import code_of, row
from bench.projects.catalog import PROGRAMS, Program


def test_a_program_is_taken_from_a_clone_with_the_data_that_are_made_for_it(tmp_path: Path) -> None:
    clone = tmp_path / "clones" / "some+one"
    for path in ("wanted/train.py", "other/big.bin"):
        (clone / path).parent.mkdir(parents=True)
        (clone / path).write_text("x")
    git = ("git", "-c", "user.name=a", "-c", "user.email=a@b", "-C", str(clone))
    for words in (("init", "--quiet"), ("add", "."), ("commit", "--quiet", "-m", "all")):
        subprocess.run([*git, *words], check=True)
    commit = subprocess.run([*git, "rev-parse", "HEAD"], check=True, capture_output=True, text=True).stdout.strip()

    def make(root: Path) -> None:
        (root / "wanted/data.txt").write_text("small")

    program = Program("it", "some/one", commit, "train.py", make=make, paths=("wanted",))
    into = tmp_path / "into"
    into.mkdir()
    for _ in range(2):
        root = code_of(program, into, tmp_path / "clones")
        assert sorted(one.relative_to(root).as_posix() for one in root.rglob("*.*")) == [
            "wanted/data.txt",
            "wanted/train.py",
        ]


def test_a_row_counts_the_findings_that_were_read() -> None:
    findings = [{"code": code, "severity": severity, "path": "train.py", "line": 7} for code, severity in FOUND]
    text = "this machine's CPU in the place of torch.cuda, NCCL (gloo). Times are not those of a GPU"
    report = {
        "findings": findings,
        "readiness": [{"topic": "accelerator", "evidence": [{"text": text}]}],
        "rehearsal": {
            "failure": "",
            "runs": [
                {"made": True, "steps": 3, "seconds": 2.5},
                {"made": True, "steps": 4, "seconds": 2.0},
                {"made": False, "steps": 0, "seconds": 0},
            ],
        },
    }
    program = Program("it", "some/one", "0123456789", "train.py --steps 4", right=("AR101 train.py:7",))
    assert row(program, report) == (
        "it: `train.py` of some/one 0123456",
        *("2", "4", "4", "AR101 train.py:7, AR401 train.py:7", "1 of 2", "torch.cuda, NCCL (gloo)"),
    )


FOUND = (("AR101", "error"), ("AR401", "warning"), ("AR012", "info"))


def test_every_program_has_a_commit_and_a_name_of_its_own() -> None:
    assert len({program.name for program in PROGRAMS}) == len(PROGRAMS)
    assert all(len(program.commit) == 40 for program in PROGRAMS)
