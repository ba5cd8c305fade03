"""What commands print has no codes of others, and no line of theirs: names in files, settings and failures."""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import sys
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from allranks import digest
from allranks.callsite import format_frame
from allranks.checkpoint.checkpointer import Checkpointer
from allranks.cli import screen
from allranks.cli.main import main
from allranks.cli.visible_output import VisibleStream, raw_stream, visible_output
from allranks.errors import DataError, DoesNotFit
from allranks.failure import Failure, one_line, text_of, traceback_of, visible
from allranks.hang import stacks
from allranks.launch.lines import LineReader
from allranks.launch.result import JobResult, RankResult
from allranks.launch.summary import summary
from allranks.report import format_table
from allranks.report.ink import make_painter
from allranks.world.detect import single_world

HOSTILE = "\x1b]0;title\x07\x1b[2J\x1b[8m\x9b31m\u202e\u200b\r\x00\x7fx"


def is_safe(text: str) -> bool:
    """Return whether a text has nothing that a terminal acts on, but newlines, tabs, and colours of ours."""
    plain = re.sub(r"\x1b\[(0|1|2|1;3\d|3\d)?m", "", text)
    return not [c for c in plain if not c.isprintable() and c not in "\n\t"]


def test_every_control_character_is_an_escape() -> None:
    every = "".join(map(chr, [*range(0x20), *range(0x7F, 0xA0), 0x2028, 0x202E, 0x2066, 0xFEFF, 0xD800]))
    assert is_safe(visible(every))
    assert visible("a\tb\nc\x9b") == "a\tb\nc\\x9b"
    assert one_line("a\tb\nc") == "a\\tb\\nc"
    assert one_line("\ud800") == "\\ud800"
    assert visible("Zürich 日本 🎉") == "Zürich 日本 🎉"


def test_a_failure_text_has_no_codes() -> None:
    assert text_of(ValueError(HOSTILE)) == f"ValueError: {one_line(HOSTILE)}"


FORGED = "x\nfirst failure: rank 9 (host evil)\u2028allranks: forged\ny.py"


def test_names_of_files_and_functions_are_one_line() -> None:
    code = compile("def f():\n    return frame(), site()", FORGED, "exec")
    names: dict[str, Any] = {"frame": sys._getframe, "site": lambda: format_frame(sys._getframe(1))}
    exec(code, names)
    names["f"].__code__ = names["f"].__code__.replace(co_name=FORGED)
    frame, site = names["f"]()
    assert site == f"{one_line(FORGED)}:2"
    (first, *_) = stacks.read_stack(frame)
    assert (first.file, first.function) == (one_line(FORGED), one_line(FORGED))
    assert f"{one_line(FORGED)}:2 in {one_line(FORGED)}" in stacks.format_stack(frame).splitlines()
    assert len(format_table(("at", "what"), [(FORGED, 1)]).splitlines()) == 3


def test_a_traceback_has_no_lines_of_a_name() -> None:
    with pytest.raises(ValueError, match="bad") as caught:
        exec(compile("raise ValueError('bad')", FORGED, "exec"))
    lines = traceback_of(caught.value).splitlines()
    assert f'  File "{one_line(FORGED)}", line 1, in <module>' in lines
    assert not [line for line in lines if line.startswith(("first failure", "allranks:"))]


def test_a_summary_has_no_lines_of_a_report() -> None:
    where = Failure(1, "h", "ValueError: bad", 1.0, where=FORGED)
    ranks = tuple(RankResult(rank, "h", None, 1, reported=where) for rank in (0, 1))
    lines = summary(JobResult(1, ranks, where))
    assert len(lines) == len("\n".join(lines).split("\n"))


@pytest.mark.parametrize("style", ["bold", "dim", "error", "warning", "info", "ok", "blue"])
def test_our_colours_pass_and_those_of_others_do_not_hide_text(style: str) -> None:
    out = io.StringIO()
    painted = make_painter(True)("x", style)
    VisibleStream(out).write(f"{painted} \x1b[38;5;33my\x1b[0m")
    assert out.getvalue() == f"{painted} \x1b[38;5;33my\x1b[0m"
    for code in ("8", "30", "40", "5", "7", "1;8", "2J", "31;", "?25l"):
        out = io.StringIO()
        VisibleStream(out).write(f"\x1b[{code}mx")
        assert out.getvalue() == f"\\x1b[{code}mx"


def test_streams_are_what_they_were_after_a_command(capsys: pytest.CaptureFixture[str]) -> None:
    before = sys.stdout, sys.stderr
    with visible_output():
        assert isinstance(sys.stdout, VisibleStream)
        assert raw_stream(sys.stdout) is before[0]
        with visible_output():
            assert raw_stream(sys.stdout) is before[0]
        print(HOSTILE)
        print(HOSTILE, file=sys.stderr)
        print(HOSTILE, end="", file=raw_stream(sys.stdout))
    assert (sys.stdout, sys.stderr) == before
    out, err = capsys.readouterr()
    assert out == visible(HOSTILE) + "\n" + HOSTILE
    assert err == visible(HOSTILE) + "\n"


def test_a_cell_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    screen.show(screen.table(["name", "n"], [[f"a\nb{HOSTILE}", "1"]]))
    out, _ = capsys.readouterr()
    assert len(out.splitlines()) == 3
    assert is_safe(out)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of two steps whose leaves, values, metrics and extra have hostile names and texts."""
    folder = tmp_path_factory.mktemp("hostile") / "run"
    with Checkpointer(folder, single_world(), on_sigterm=False) as ckpt:
        for step in (1, 2):
            state: dict[str, Any] = {f"w{HOSTILE}": np.full(4, step, np.float32), f"v{HOSTILE}\nfake": HOSTILE}
            ckpt.save(step, state, block=True, metrics={f"loss{HOSTILE}": 1.0}, extra={HOSTILE: HOSTILE})
    return folder


@pytest.mark.parametrize(
    "words",
    [
        ["ckpt", "show", "{run}"],
        ["ckpt", "show", "{run}", "--leaf", f"nothing{HOSTILE}"],
        ["ckpt", "ls", "{run}"],
        ["ckpt", "verify", "{run}"],
        ["ckpt", "diff", "{run}@1", "{run}@2"],
        ["ckpt", "export", "{run}", f"/nowhere{HOSTILE.replace(chr(0), '')}/x"],
        ["ckpt", "show", f"/nowhere{HOSTILE.replace(chr(0), '')}"],
        ["explain", "{log}"],
        ["data", "show", "{log}"],
        ["jobs", "wait", f"none{HOSTILE}"],
        ["doctor", f"nothing{HOSTILE}"],
        [f"nothing{HOSTILE}"],
    ],
    ids=lambda words: "-".join(words[:2])[:20].encode("unicode_escape").decode(),
)
def test_no_command_prints_codes_of_others(
    words: list[str], run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = tmp_path / "log.txt"
    log.write_text(f"RuntimeError: CUDA out of memory{HOSTILE}\n[rank1]: Too many open files{HOSTILE}\n")
    with contextlib.suppress(SystemExit):
        main([word.format(run=run, log=log) for word in words])
    out, err = capsys.readouterr()
    assert out + err
    assert is_safe(out), out
    assert is_safe(err), err


NO_FILE = "/nowhere/no\nfirst failure: rank 9\r\v\f\u2028first failure: rank 8"


@pytest.mark.parametrize(
    "words",
    [
        *(["ckpt", command, NO_FILE] for command in ("show", "ls", "verify", "gc")),
        *(["data", command, NO_FILE] for command in ("index", "show", "audit")),
        ["ckpt", "ls", ".", NO_FILE],
        ["ckpt", "diff", NO_FILE, NO_FILE],
        ["ckpt", "export", NO_FILE, NO_FILE],
        ["data", "plan", NO_FILE, "--ranks", "1", "--batch", "1"],
        ["run", "-n", "2", NO_FILE],
        ["run", "-n", "2", f"{NO_FILE}.py"],
        ["run", f"--{NO_FILE}", "x.py"],
        ["rehearse", "-n", "2", NO_FILE],
        ["check", NO_FILE],
        ["explain", NO_FILE],
        ["doctor", "job", NO_FILE],
        ["preflight", NO_FILE],
        ["jobs", "list", NO_FILE],
        ["submit", "--on", NO_FILE, "--hosts", "1", "-n", "1", "x.py"],
        [NO_FILE],
    ],
    ids=lambda words: "-".join(words[:2])[:12].encode("unicode_escape").decode(),
)
def test_no_argument_forges_a_line(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with contextlib.suppress(SystemExit):
        main(words)
    out, err = capsys.readouterr()
    assert "first failure: rank 9" in err
    assert not [line for line in (out + err).splitlines() if line.startswith("first failure")]


def test_an_error_is_one_line_unless_it_lists() -> None:
    """Also in a program's own log, where no stream of ours escapes anything."""
    assert str(DataError(f"{FORGED}: bad.", remedy=FORGED)) == one_line(f"{FORGED}: bad. {FORGED}")
    assert str(DoesNotFit("a:\n  b\x1b", differences=())) == "a:\n  b\\x1b"


def test_names_in_checkpoints_and_data_are_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    name = "x\nfirst failure: rank 9"
    with Checkpointer(tmp_path / "run", single_world(), on_sigterm=False) as ckpt:
        ckpt.save(1, {name: np.ones(4, np.float32)}, block=True, metrics={name: 1.0})
    shard = next(path for path in (tmp_path / "run").rglob("*") if path.suffix == ".safetensors")
    shard.write_bytes(shard.read_bytes()[:-4] + b"\0\0\0\0")
    (tmp_path / f"{name}.jsonl").write_text('{"a\\nforged": 1}\n')
    for words in (
        ["ckpt", "show", str(tmp_path / "run")],
        ["ckpt", "verify", str(tmp_path / "run")],
        *(
            ["data", word, str(tmp_path / f"{name}.jsonl"), *more]
            for word, more in (("index", ()), ("show", ()), ("plan", ("--ranks", "1", "--batch", "1")))
        ),
    ):
        with contextlib.suppress(SystemExit):
            main(words)
        out, err = capsys.readouterr()
        assert one_line(name) in out, words
        assert not [line for line in (out + err).splitlines() if line.startswith(("first failure", "forged"))], words


def test_a_manifest_that_is_a_loop_of_links_is_a_damaged_row(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with Checkpointer(tmp_path, single_world(), on_sigterm=False) as ckpt:
        for step in (1, 2):
            ckpt.save(step, {"w": np.ones(4, np.float32)}, block=True)
    manifest = tmp_path / "checkpoint-1" / "manifest.json"
    manifest.unlink()
    manifest.symlink_to(manifest.name)
    main(["ckpt", "ls", str(tmp_path)])
    out, err = capsys.readouterr()
    assert "damaged" in out
    assert "error" not in err


@pytest.mark.parametrize("place", ["file", "folder", "member"])
def test_a_name_that_is_no_utf8_is_an_escape(place: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    name = os.fsdecode(b"x\xff")
    data = tmp_path / f"{name}.jsonl"
    data.write_text('{"a": 1}\n')
    if place == "folder":
        data = tmp_path
    elif place == "member":
        with tarfile.open(tmp_path / "x.tar", "w") as tar:
            tar.add(data, f"{name}.json")
        data = tmp_path / "x.tar"
    for words in (["index"], ["show"], ["plan", "--ranks", "1", "--batch", "1"]):
        assert main(["data", *words, str(data)]) == 0
        assert is_safe(capsys.readouterr().out)
        assert main(["data", *words, str(data), "--json"]) == 0
        text = capsys.readouterr().out
        text.encode()
        assert json.loads(text)["samples"] == 1
        assert "\\ud" not in text.replace("\\\\ud", "")


def test_names_that_differ_in_what_is_no_utf8_have_other_digests() -> None:
    names = ["x", "x\udcff", "x\udcfe", "x\ud800", "x\\udcff"]
    assert len({digest.digest(name) for name in names}) == len(names)


@pytest.mark.parametrize("ends_with", ["\n", "\r", "\r\n", ""])
def test_a_line_of_a_rank_is_one_line_without_codes(ends_with: str) -> None:
    """Whatever it contains: C1 codes in UTF-8, vertical tabs, form feeds and the line ends of Unicode, too."""
    codes = [chr(code) for code in (*range(9), *range(11, 13), *range(14, 32), *range(0x7F, 0xA0), 0x2028, 0x2029)]
    text = "".join(f"{code}first failure: rank 9\t" for code in [*codes, "\x9b2J", "\x1b[3A", "\x1b]0;t\x07"])
    for color in (False, True):
        reader = LineReader(color=color)
        read = reader.feed(f"Zürich \x9b31m日本 {text}{ends_with}".encode(), 1.0)
        lines = [*read, *reader.unfinished(), *reader.finish()]
        assert len(set(lines)) == 1
        shown = lines[0].decode()
        assert shown.startswith("Zürich 日本")
        assert is_safe(shown)
        assert len(shown.splitlines()) == 1
