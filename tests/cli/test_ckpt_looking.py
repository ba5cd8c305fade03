"""``allranks ckpt ls`` and ``show``; wrong command lines."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from runs import Said, Tree, four_ranks, save

from allranks.cli.main import main
from allranks.storage.local import LocalStorage


def test_ls_lists_steps_with_their_size_and_metrics_and_marks_the_newest(ckpt: Callable[..., Said], run: Path) -> None:
    said = ckpt("ls", run)
    assert said.code == 0
    header, _, first, second = said.out.splitlines()
    assert header.split() == ["step", "created", "(UTC)", "size", "leaves", "files", "ranks", "metrics", "state"]
    assert first.split()[0] == "100"
    assert "5      4      4  loss 2.5" in first
    assert second.endswith("newest")
    document = ckpt("ls", run, "--json").document
    assert document["newest"] == 200
    assert [(one["step"], one["state"], one["ranks"]) for one in document["steps"]] == [
        (100, "whole", 4),
        (200, "whole", 4),
    ]


def test_ls_shows_the_step_in_the_hosts_memory(ckpt: Callable[..., Said], run: Path) -> None:
    """Its manifest is that of any step; also where there is no other."""
    assert ckpt("ls", run, "--json").document["memory"] is None
    (run / "memory.json").write_bytes((run / "checkpoint-200" / "manifest.json").read_bytes())
    assert ckpt("ls", run, "--json").document["memory"] == 200
    for step in (100, 200):
        shutil.rmtree(run / f"checkpoint-{step}")
    said = ckpt("ls", run)
    assert said.code == 0
    (line,) = said.out.splitlines()
    assert line.startswith("step 200 (")
    assert "is in the memory of the job's hosts" in line


def test_ls_tells_damaged_manifests_and_saves_that_never_ended(
    ckpt: Callable[..., Said], run: Path, arrays: dict[str, np.ndarray]
) -> None:
    """A damaged manifest is damage (exit code 1); the newest step is the newest that is whole."""
    save(LocalStorage(run), 300, four_ranks(arrays), unfinished=True)
    manifest = run / "checkpoint-200" / "manifest.json"
    manifest.write_bytes(manifest.read_bytes().replace(b"float32", b"float23", 1))
    said = ckpt("ls", run)
    assert said.code == 1
    assert "checkpoint-200/manifest.json is not a valid manifest: the xxh3-128 digest" in said.out
    assert "step 300: no manifest, so it is not a checkpoint" in said.out
    document = ckpt("ls", run, "--json").document
    assert [one["state"] for one in document["steps"]] == ["whole", "damaged", "unfinished"]
    assert document["newest"] == 100
    assert document["steps"][2]["bytes"] > 400_000
    assert 0 <= document["steps"][2]["unchanged_for"] < 600


@pytest.mark.parametrize(
    ("inside", "says"),
    [
        (None, "it is empty, or does not exist."),
        ("notes.txt", "it contains other files only."),
        ("a/checkpoint-5/x", "it is not a run, but it contains the runs a."),
    ],
)
def test_where_nothing_is_saved_ls_says_so(
    inside: str | None, says: str, ckpt: Callable[..., Said], tmp_path: Path
) -> None:
    if inside:
        (tmp_path / "none" / inside).parent.mkdir(parents=True)
        (tmp_path / "none" / inside).touch()
    said = ckpt("ls", tmp_path / "none")
    assert (said.code, said.out) == (2, "")
    assert said.err.startswith(f"allranks: {tmp_path / 'none'} has no step: ")
    assert says in said.err
    assert not inside or (tmp_path / "none").is_dir()


def test_show_names_every_leaf_and_how_it_is_cut(ckpt: Callable[..., Said], run: Path) -> None:
    said = ckpt("show", run, "--step", 100)
    assert said.code == 0
    lines = {line.split()[0]: line.split() for line in said.out.splitlines() if line.strip()}
    assert lines["model/wte"] == ["model/wte", "float32", "512", "x", "96", "197", "kB", "4", "x", "1", "4"]
    assert lines["model/wq"][-4:] == ["1", "x", "4", "4"]
    assert lines["opt/count"][2:] == ["()", "4", "B", "whole", "1"]
    assert lines["saved"] == ["saved", "by", "4", "ranks"]
    assert lines["lr"] == ["lr", "0.1"]
    assert "model_type" in said.out


def test_show_takes_a_pattern_and_gives_json(ckpt: Callable[..., Said], run: Path) -> None:
    """Without a step it is the newest."""
    document = ckpt("show", run, "--leaf", "opt/*", "--json").document
    assert document["step"] == 200
    assert list(document["leaves"]) == ["opt/mu/wte", "opt/count"]
    expected = {"dtype": "float32", "kind": None, "shape": [512, 96], "bytes": 196_608, "cut": "4 x 1", "files": 4}
    assert document["leaves"]["opt/mu/wte"] == expected
    assert document["extra"]["data"] == {"epoch": 1}
    assert len(document["files"]) == 4
    assert ckpt("show", run, "--leaf", "optimizer/*").code == 2


@pytest.mark.parametrize("form", ["{run}@100", "{run}/checkpoint-100", "{run}/checkpoint-100/", "file://{run}@100"])
def test_a_step_may_stand_in_the_address(form: str, ckpt: Callable[..., Said], run: Path) -> None:
    assert ckpt("show", form.format(run=run), "--json").document["step"] == 100


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["show", "{run}@300"], "has no step 300: expected one of 100, 200."),
        (["show", "{run}@100", "--step", "200"], "names step 100, but --step names step 200"),
        (["verify", "{run}/elsewhere"], "has no checkpoint"),
        (["verify", "{run}", "--threads", "0"], "at least 1"),
        (["show", "ftp://host/run"], "names no storage"),
        (["diff", "{run}"], "diff: expected two checkpoints"),
        (["gc", "{run}", "--keep-last", "0"], "keep_last=0: expected an int above 0"),
        (["gc", "{run}", "--keep-every", "2"], "without keep_last"),
        (["gc", "{run}@100"], "is the folder of one step: expected the folder of a run"),
        (["export", "{run}", "{run}/out", "--prefix", "mode"], "step 200 has no leaf below 'mode'"),
        (["export", "{run}", "{run}/out", "--config", "{run}/no.json"], "no.json: expected a readable JSON file"),
    ],
)
def test_what_cannot_be_done_is_one_line_and_exit_code_2(
    words: list[str], says: str, ckpt: Callable[..., Said], run: Path
) -> None:
    said = ckpt(*(word.format(run=run) for word in words))
    assert (said.code, said.out) == (2, "")
    assert said.err.startswith("allranks: ")
    assert says in said.err
    assert said.err.count("\n") == 1


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["walk"], "no command 'walk'"),
        (["ls"], "required: RUN"),
        (["export", "a", "b", "--max-shard-size", "big"], "'big' is not a size: expected one such as 5GB"),
        (
            ["export", "a", "b", "--dtype", "int8"],
            "'int8' is not a dtype to cast to: expected one of f64, f32, f16, bf16",
        ),
        (["gc", "a", "--older-than", "soon"], "'soon' is not a time: expected one such as"),
    ],
)
def test_a_wrong_command_line_says_what_is_wrong(
    words: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as end:
        main(["ckpt", *words])
    assert end.value.code == 2
    assert says in capsys.readouterr().err


def test_alone_it_lists_the_commands(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["ckpt"]) == 2
    assert "verify  read every byte" in capsys.readouterr().err


def test_on_a_terminal_of_80_columns_long_paths_are_folded(tmp_path: Path) -> None:
    """The real command on a real terminal; with NO_COLOR no colours."""
    run, path = tmp_path / "run", "opt/" + "/".join(f"{number:09}" for number in range(9))
    save(LocalStorage(run), 1, Tree({path: np.zeros((4, 4), np.float32)}))
    source = f"import sys; from allranks.cli.main import main; sys.exit(main(['ckpt', 'show', {str(run)!r}]))"
    master, slave = os.openpty()
    environment = {**os.environ, "COLUMNS": "80", "NO_COLOR": "1", "TERM": "xterm-256color"}
    with subprocess.Popen([sys.executable, "-c", source], stdout=slave, env=environment) as process:
        os.close(slave)
        shown = b""
        with suppress(OSError):  # the other end is closed
            while more := os.read(master, 1 << 16):
                shown += more
    os.close(master)
    assert process.returncode == 0
    text = re.sub(r"\x1b\[[01]m", "", shown.decode())  # bold may be
    assert "\x1b" not in text
    table = text[text.index("leaf ") :].splitlines()
    assert max(map(len, table)) <= 80
    assert "".join(line.split(" ")[0] for line in table[2:]) == path
