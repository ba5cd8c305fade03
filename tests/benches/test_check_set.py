"""The evaluation set of ``allranks check``: its data are whole, and what it counts is counted rightly."""

from __future__ import annotations

import ast
import dataclasses
import json
import re
import subprocess
from pathlib import Path

import pytest

import bench.check.labels as labels_of_check
from allranks.check.registry import all_rules
from allranks.findings import Finding, Note, Place
from bench.check.baseline import Kept, compare, read, write
from bench.check.fetch import Missing, tree
from bench.check.fresh import count
from bench.check.labels import SPLITS, CodeBase, Label, code_bases, judgements, labels, split
from bench.check.score import Found, Score, Scored, codes_table, halves_table, scored
from bench.check.why import why
from bench.check.written import Written, written

LABEL = Label("a-1", "o/a", "0" * 40, "train.py", 10, ("AR101", "AR102"), "torch", "why", "https://", ("io.py:3",))


def finding(code: str, path: str, line: int, *notes: Note) -> Finding:
    return Finding(code, "name", "error", "message", Place(path, line, 1, line, 2), "train.main", "", "", notes)


def test_every_label_says_where_what_and_why() -> None:
    """Ids are unique, commits whole, codes those of rules, and each has a public page as evidence."""
    entries = labels()
    assert len({entry.id for entry in entries}) == len(entries) >= 100
    for entry in entries:
        assert re.fullmatch(r"[0-9a-f]{40}", entry.commit), entry.id
        assert all(re.fullmatch(r"AR[1-8]\d\d", code) for code in entry.codes), entry.id
        assert entry.line > 0, entry.id
        assert (entry.path.endswith(".py"), entry.why.endswith(".")) == (True, True), entry.id
        assert entry.evidence.startswith(f"https://github.com/{entry.repository}/"), entry.id


def test_no_repository_is_in_both_halves() -> None:
    """What one half names, the other does not, whatever the case of its letters."""
    every = [(entry.repository, entry.repository.lower()) for entry in (*labels(), *code_bases())]
    named = {half: {small for name, small in every if split(name) == half} for half in SPLITS}
    assert len(named["dev"]) >= 50
    read = (Path(labels_of_check.__file__).parent / "dev" / "read.txt").read_text().lower().splitlines()
    named["dev"] |= {line for line in read if not line.startswith("#")}
    assert not named["dev"] & named["held-out"]


@pytest.mark.parametrize("name", ["labels", "code", "judgements"])
def test_the_data_are_sorted_lines(name: str) -> None:
    """One line an entry, in order, so that a change shows the entries that it changes."""
    lines = (Path(labels_of_check.__file__).parent / "dev" / f"{name}.jsonl").read_text("utf-8").splitlines()
    entries = [json.loads(line) for line in lines]
    keys = {
        "labels": lambda e: e["id"],
        "code": lambda e: (not e["well_kept"], e["repository"].lower(), e["commit"]),
        "judgements": lambda e: (e["repository"], e["code"], e["path"], e["symbol"]),
    }
    assert entries == sorted(entries, key=keys[name])
    assert lines == [json.dumps(entry, ensure_ascii=False, sort_keys=True) for entry in entries]


def test_judgements_can_be_read() -> None:
    """Each is of one fingerprint and gives a reason."""
    assert all(len(fingerprint) == 4 and judgement.why for fingerprint, judgement in judgements().items())


@pytest.mark.parametrize(
    ("found", "hit", "instead"),
    [
        (finding("AR101", "train.py", 13), True, ()),
        (finding("AR102", "io.py", 1), True, ()),
        (finding("AR101", "train.py", 14), False, ()),
        (finding("AR101", "other.py", 10), False, ()),
        (finding("AR201", "train.py", 10), False, ("AR201",)),
        (finding("AR101", "far.py", 99, Note("called here", Place("train.py", 9, 1, 9, 5))), True, ()),
    ],
)
def test_a_hit_has_the_code_and_the_place(found: Finding, hit: bool, instead: tuple[str, ...]) -> None:
    """Three lines off is near, four are not; a note of the call chain counts; another code is told apart."""
    result = scored(LABEL, [found], frozenset({"AR101"}))
    assert (result.hit is not None, result.instead) == (hit, instead)
    assert result.default == (hit and found.code == "AR101")


def test_the_tables_count_by_half() -> None:
    """Recall is of labels, precision of what was judged, noise of good lines, each in its own half."""
    bug = Label("n-1", "o/a", "0" * 40, "train.py", 1, ("AR101",), "torch", "why.", "https://")
    real, false, fresh = (
        Found("o/a", "0" * 40, finding("AR101", "train.py", line), verdict, "", True, verdict != "true")
        for line, verdict in ((1, "true"), (50, "false"), (60, "open"))
    )
    hit = Scored(bug, real.finding, default=True, instead=())
    whole = Score(
        (hit, Scored(bug, None, default=False, instead=())), (real, false, fresh), {bug.repository: 8000}, (), ()
    )
    rows = {
        line.split(" | ")[0].strip("| "): line.split(" | ")[1].strip(" |") for line in halves_table(whole).splitlines()
    }
    assert rows["found (recall)"] == "1 (0.50)"
    assert rows["precision"] == "0.50"
    assert rows["findings per 2,000 good lines"] == "0.50"
    assert "| AR101" in codes_table(whole)


def test_code_is_fetched_once_from_a_folder_of_git_directories(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The Python files of the commit come, nothing else; a commit that nobody has is told."""
    made = tmp_path / "mirror" / "o+a"
    for words in (
        ["init", "-q", "-b", "main", "work"],
        ["-C", "work", "config", "user.email", "a@b"],
        ["-C", "work", "config", "user.name", "a"],
    ):
        subprocess.run(["git", *words], cwd=tmp_path, check=True)
    (tmp_path / "work" / "pkg").mkdir()
    (tmp_path / "work" / "pkg" / "train.py").write_text("x = 1\n")
    (tmp_path / "work" / "data.bin").write_text("no\n")
    for words in (["add", "."], ["commit", "-qm", "a"]):
        subprocess.run(["git", "-C", "work", *words], cwd=tmp_path, check=True)
    subprocess.run(["git", "clone", "-q", "--bare", "work", made], cwd=tmp_path, check=True)
    commit = subprocess.run(
        ["git", "-C", made, "rev-parse", "HEAD"], capture_output=True, text=True, check=True
    ).stdout.strip()
    where = tree("o/a", commit, into=tmp_path / "code", mirror=tmp_path / "mirror")
    assert [path.relative_to(where).as_posix() for path in where.rglob("*") if path.is_file()] == ["pkg/train.py"]
    assert tree("o/a", commit, into=tmp_path / "code") == where
    monkeypatch.setattr("bench.check.fetch.HOST", f"file://{tmp_path}/nowhere")
    with pytest.raises(Missing):
        tree("o/b", "0" * 40, into=tmp_path / "code")


def test_code_without_labels_is_named_by_folders() -> None:
    """Each entry names a commit and what of it counts."""
    entries = code_bases()
    assert all(re.fullmatch(r"[0-9a-f]{40}", entry.commit) and entry.paths for entry in entries)
    assert all(isinstance(entry, CodeBase) for entry in entries)
    assert sum(entry.well_kept for entry in entries) >= 20


@pytest.mark.soak
def test_written_programs_are_whole_and_their_bugs_stand_where_they_say() -> None:
    """Each parses; a bug has known codes, differs from the right program, and its places are lines of its files."""
    known = {rule.code for rule in all_rules()}
    right: dict[str, Written] = {}
    for program in written():
        for path, text in program.files.items():
            if path.endswith(".py"):
                ast.parse(text, path)
        if program.bug is None:
            right[program.name] = program
            continue
        assert program.files != right[program.bug.repository].files, program.name
        assert set(program.bug.codes) <= known, program.name
        for path, line in program.bug.places:
            assert 1 <= line <= len(program.files[path].splitlines()), program.name


def test_why_tells_what_is_known_at_a_bug() -> None:
    """The finding there, and the call with who reaches it and by which way."""
    text = b"import torch\nimport torch.distributed as dist\n\ndist.init_process_group()\ntorch.save({}, 'a.pt')\n"
    told = "\n".join(why(dataclasses.replace(LABEL, path="train.py", line=5, also=()), {"train.py": text}))
    assert "     5 torch.save({}, 'a.pt')" in told
    assert "finding: AR101 (high) train.py:5" in told
    assert "call train.py:5" in told
    assert "torch.save [checkpoint]" in told
    assert "roles=xxxx active sure" in told


def test_a_baseline_tells_what_is_lost_and_gained(tmp_path: Path) -> None:
    """A finding two lines away is the same, one of low confidence is lost, and what nobody judged is counted apart."""

    def one(line: int, verdict: str, *, shown: bool = True) -> Kept:
        return Kept("o/a", "0" * 12, "AR101", "train.py", line, "train", shown, verdict)

    before = [one(1, "true"), one(20, "true"), one(40, "true"), one(60, "false")]
    after = [one(3, "true"), one(20, "true", shown=False), one(61, "false"), one(80, "open"), one(90, "true")]
    write(tmp_path / "kept", before)
    row = compare(read(tmp_path / "kept"), after).splitlines()[2]
    assert [cell.strip() for cell in row.strip("| ").split("|")] == ["AR101", "3", "1", "1", "1", "1", "0", "1"]


def test_the_fresh_set_is_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its entries can be read; what cannot be fetched is counted as left out."""

    def missing(*_: object, **__: object) -> Path:
        raise Missing("nobody has it")

    monkeypatch.setattr("bench.check.fresh.tree", missing)
    for name, bugs in (("labels", 81), ("seeds", 47)):
        told = count(name, into=tmp_path, mirror=None)
        assert told == f"{name}: {bugs} bugs, 0 found by default, 0 by all rules, {bugs} not fetched"
