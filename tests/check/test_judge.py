"""Files in, findings out: what the judge adds to the engine."""

from __future__ import annotations

import ast
import json
from collections.abc import Iterator
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from allranks.check.config import Config
from allranks.check.judge import judge
from allranks.check.knowledge.tables import Effect
from allranks.check.results.mend import mend
from allranks.check.results.shown import prints_of, report_of
from allranks.check.rules.ar109_ungated_delete import UngatedDelete
from allranks.check.rules.ar803_sleep_as_barrier import SleepAsBarrier
from allranks.check.simulate.recording import Recording
from allranks.check.simulate.values import Value
from allranks.check.sources.source import File
from allranks.findings import Finding

TRAIN = b"""\
import torch
import torch.distributed as dist


def main():
    dist.init_process_group("nccl")
    torch.save({}, "last.pt")


if __name__ == "__main__":
    main()
"""
CONFIG = Config(select=("AR101", "AR9"))


def codes(files: dict[str, bytes], config: Config = CONFIG, **more) -> list[tuple[str, str, int]]:
    found = judge(files, config, **more).findings
    return [(one.code, one.place.path, one.place.line) for one in found]


def test_a_comment_suppresses_a_finding() -> None:
    """And is then used; without the finding it would be AR901."""
    assert codes({"train.py": TRAIN}) == [("AR101", "train.py", 7)]
    quiet = TRAIN.replace(b'"last.pt")', b'"last.pt")  # allranks: ignore[AR101] a test')
    assert codes({"train.py": quiet}) == []
    assert codes({"train.py": quiet.replace(b"torch.save", b"print")}) == [("AR901", "train.py", 7)]
    assert codes({"train.py": quiet}, replace(CONFIG, select=("AR101",))) == []


def test_a_notebook_is_judged_like_a_file() -> None:
    """Its findings are at lines of the text of all cells; the report names the cell."""
    head, middle, tail = TRAIN.decode().partition("def main")
    cells = [{"cell_type": "code", "source": part} for part in (head, middle + tail)]
    files = {"tour.ipynb": json.dumps({"cells": cells}).encode()}
    judged = judge(files, CONFIG)
    assert [one.code for one in judged.findings] == ["AR101"]
    report = report_of(judged, files)
    assert report.where(judged.findings[0].place).startswith("tour.ipynb:cell 2:")
    place = judged.findings[0].place
    assert report.sources["tour.ipynb"].line(place.line) == '    torch.save({}, "last.pt")'


def test_rules_can_be_silent_in_some_files() -> None:
    """By code, family or all; globs are from the root."""
    files = {"tools/train.py": TRAIN, "train.py": TRAIN}
    for selector in ("AR101", "AR1", "ALL"):
        config = replace(CONFIG, per_file_ignores=(("tools/**", (selector,)),))
        assert codes(files, config) == [("AR101", "train.py", 7)]


def test_files_that_are_only_followed_are_not_reported() -> None:
    """Those that could not be read are, wherever they stand."""
    files = {"train.py": TRAIN, "other.py": TRAIN, "broken.py": b"("}
    assert codes(files, shown={"train.py"}, failed={"gone.py": "cannot be read"}) == [
        ("AR900", "gone.py", 1),
        ("AR101", "train.py", 7),
    ]


def test_every_finding_has_a_fingerprint() -> None:
    """One in a file that cannot be read too."""
    files = {"train.py": TRAIN, "broken.py": b"(", "b.ipynb": b"{}", "c.py": b"\xff"}
    judged = judge(files, CONFIG, failed={"gone.py": "cannot be read"})
    assert set(prints_of(judged, files)) == set(judged.findings)


@settings(max_examples=40, deadline=None)
@given(st.binary(max_size=80), st.integers(0, len(TRAIN)), st.integers(0, 60))
def test_no_text_stops_the_check(noise: bytes, at: int, gone: int) -> None:
    """Noise in a program: it is judged, or it is said why not."""
    text = TRAIN[:at] + noise + TRAIN[at + gone :]
    files = {"train.py": text, "tour.ipynb": noise}
    judged = judge(files, CONFIG)
    assert report_of(judged, files, prints=prints_of(judged, files)).files == 2
    assert not [one for one in judged.findings if one.code == "AR903" and one.severity == "warning"]


def test_a_rule_that_fails_is_reported_and_hides_nothing(monkeypatch) -> None:
    def fails(*_: object) -> Iterator[Finding]:
        raise ValueError("no such node")
        yield

    monkeypatch.setattr(SleepAsBarrier, "visit", fails)
    monkeypatch.setattr(UngatedDelete, "check", fails)
    files = {"train.py": TRAIN, "wait.py": b"import time\nimport torch.distributed as dist\n\ntime.sleep(3)\n"}
    found = judge(files, Config()).findings
    assert "AR101" in [f.code for f in found]
    failed = [(f.place.path, f.message.partition(":")[0]) for f in found if f.code == "AR903"]
    assert failed == [("train.py", "AR109 failed here (ValueError"), ("wait.py", "AR803 failed here (ValueError")]


def test_a_rule_that_goes_too_deep_is_reported_and_hides_nothing(monkeypatch) -> None:
    """Once all that the local rules had found in such a file was lost, for what looked like nested code."""

    def goes_deeper(self: SleepAsBarrier, node: ast.AST, file: File) -> Iterator[Finding]:
        yield from self.visit(node, file)

    monkeypatch.setattr(SleepAsBarrier, "visit", goes_deeper)
    program = b"import torch.distributed as dist\nimport time\n\ntime.sleep(3)\ndist.all_reduce(loss / 2)\n"
    found = judge({"train.py": program}, Config()).findings
    assert [f.code for f in found] == ["AR903"]
    assert found[0].message == (
        "AR803 did not read all of this file: its expressions, or functions that call each other, lead too deeply "
        "into each other"
    )


def test_a_function_at_which_the_simulation_fails_is_reported_and_hides_nothing(monkeypatch) -> None:
    """As in a real project: a call that the simulation had not thought of ended the whole check."""

    def fails(self: Recording, frame: object, entry: Effect, name: str, given: object) -> Value:
        if name == "shutil.rmtree":
            raise IndexError("tuple index out of range")
        return act(self, frame, entry, name, given)

    act = Recording.act
    monkeypatch.setattr(Recording, "act", fails)
    clean = b"import shutil\n\n\ndef clean(x):\n    shutil.rmtree(x)\n\n\n"
    begun = TRAIN.replace(b"    torch.save(", b"    clean('old')\n    torch.save(")
    found = judge({"train.py": clean + begun}, Config()).findings
    assert "AR101" in [one.code for one in found]
    (failed,) = (one for one in found if one.code == "AR903")
    assert (failed.place.path, failed.severity) == ("train.py", "warning")
    assert "IndexError: tuple index out of range" in failed.message


def test_a_suppression_is_unused_only_where_the_complete_project_was_checked() -> None:
    """Its caller may stand in a file that was not given; what one file decides by itself is known."""
    idle = {"lib.py": b"import torch\n\ndef save(m):\n    torch.save(m, 'm.pt')  # allranks: ignore[AR101] of rank 0\n"}
    assert [f.code for f in judge(idle, Config()).findings] == ["AR901"]
    assert judge(idle, Config(), whole=False).findings == ()
    assert judge({**idle, "b.py": b""}, Config(entry_points=("b.py",))).findings == ()
    local = {"lib.py": b"x = 1  # allranks: ignore[AR309] nothing\n"}
    assert [f.code for f in judge(local, Config(), whole=False).findings] == ["AR901"]


def test_the_fix_of_a_listing_sorts_it_in_its_place() -> None:
    """A stored one is left to its author."""
    head = "import os\nimport torch.distributed as dist\n\ndist.init_process_group('nccl')\nr = dist.get_rank()\n"
    files = {
        "a.py": f"{head}mine = os.listdir('d')[r :: dist.get_world_size()]\n".encode(),
        "b.py": f"{head}names = os.listdir('d')\nmine = names[r :: dist.get_world_size()]\n".encode(),
    }
    mended = mend(files, lambda now: judge(now, Config(select=("AR307",))))
    assert {path: text.splitlines()[-1] for path, text in mended.changed.items()} == {
        "a.py": b"mine = sorted(os.listdir('d'))[r :: dist.get_world_size()]"
    }


def test_no_fix_is_promised_where_none_is_made() -> None:
    cells = [{"cell_type": "code", "source": "x = 1  # allranks: ignore[AR101] nothing\n"}]
    notebook = json.dumps({"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}).encode()
    (finding,) = judge({"tour.ipynb": notebook}, Config()).findings
    assert (finding.code, finding.fix) == ("AR901", None)
