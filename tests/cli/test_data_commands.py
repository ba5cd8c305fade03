"""``allranks data``: what there is, who would read what, and whether a run has read it once."""

from __future__ import annotations

import importlib
import json
import os
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from runs import Said, Tree, save

import allranks
from allranks.cli.data_place import SUFFIXES
from allranks.cli.main import main
from allranks.data.sources.detect import open_source
from allranks.storage.local import LocalStorage

pytestmark = pytest.mark.needs("orjson")
FILES = (700, 0, 1500, 200)


@pytest.fixture
def data(capsys: pytest.CaptureFixture[str]) -> Callable[..., Said]:
    """Call ``allranks data`` with these words."""

    def call(*words: object) -> Said:
        capsys.readouterr()
        code = main(["data", *map(str, words)])
        return Said(code, *capsys.readouterr())

    return call


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    """Four uneven files of 2,400 lines, one of them empty."""
    folder, number, long_ago = tmp_path / "corpus", 0, (1e9, 1e9)
    folder.mkdir()
    for at, many in enumerate(FILES):
        lines = [json.dumps({"id": number + n, "text": "x" * (n % 90)}) for n in range(many)]
        (folder / f"{at}.jsonl").write_text("".join(f"{line}\n" for line in lines))
        os.utime(folder / f"{at}.jsonl", long_ago)  # an index of a file so young would not be used again
        number += many
    return folder


def dataset(corpus: Path) -> Any:
    return allranks.Dataset.jsonl(corpus, seed=3, block_bytes=4096).batch(24)


def read_on(corpus: Path, ranks: int, steps: int, state: Any = None) -> dict[str, Any]:
    """Take that many steps on so many ranks, and return what a checkpoint would store."""

    def rank(world: allranks.World) -> Any:
        loader = dataset(corpus).loader(world, state=state, prefetch=0)
        batches = iter(loader)
        for _ in range(steps):
            next(batches, None)
        return loader.state().gathered()

    found: dict[str, Any] = allranks.SimulatedWorld(ranks).run(rank).values()[0]
    return found


@pytest.fixture
def run(tmp_path: Path, corpus: Path) -> Path:
    """Four ranks until step 30, three until 60, one until 110: into the second epoch of 100 steps."""
    where, state = tmp_path / "run", None
    for step, ranks, steps in ((30, 4, 30), (60, 3, 30), (110, 1, 41)):
        state = read_on(corpus, ranks, steps, state)
        if step == 110:
            state = read_on(corpus, 2, 10, state)
        save(LocalStorage(where), step, Tree({"w": np.zeros(4)}), extra={"note": 1, "data": state})
    return where


def test_index_tells_what_there_is_and_reads_it_once(data: Callable[..., Said], corpus: Path) -> None:
    """The second time, nothing has changed; after that, one file has."""
    first = data("index", corpus, "--json").document
    assert (first["samples"], first["files"], first["empty"], first["kind"]) == (2400, 4, 1, "jsonl")
    assert first["scanned"]["files"] == 4
    assert Path(first["kept"]["at"]).stat().st_size == first["kept"]["bytes"]
    said = data("index", corpus)
    assert said.code == 0
    assert "files    4 (1 without a sample)" in said.out
    assert "indexed  before; no file has changed" in said.out
    (corpus / "1.jsonl").write_text('{"id": -1}\n')
    again = data("index", corpus, "--json").document
    assert (again["samples"], again["scanned"]["files"]) == (2401, 1)
    assert again["digest"] != first["digest"]


def test_show_names_files_columns_and_lines_that_are_no_json(data: Callable[..., Said], corpus: Path) -> None:
    said = data("show", corpus)
    assert said.code == 0
    assert "a sample: id int, text str" in said.out
    assert "1 file without a sample." in said.out
    assert "uneven: 200 to 1,500 samples a file" in said.out
    assert data("show", corpus, "--check").code == 0
    with (corpus / "3.jsonl").open("a") as file:
        file.write('{"id": oops}\n')
    found = data("show", corpus, "--check", "--sample", 1)
    assert found.code == 1
    assert "checked: 1 of 2,401 samples cannot be used:\n  sample 2,400: " in found.out
    assert "3.jsonl" in found.out.rpartition("sample 2,400")[2]
    document = data("show", corpus, "--json", "--check").document
    assert [one["samples"] for one in document["files"]] == [700, 0, 1500, 201]
    assert [one["sample"] for one in document["bad"]] == [2400]
    assert document["first"][1] == {"id": 1, "text": "x"}


def test_plan_tells_what_the_ranks_then_do(data: Callable[..., Said], corpus: Path) -> None:
    """Samples, padding, steps and the plan's digest are those of loaders; the reading is theirs, too."""
    words = ("plan", corpus, "--ranks", 3, "--batch", 24, "--seed", 3, "--block-bytes", 4096)
    said = data(*words, "--json").document
    loaders = [dataset(corpus).loader(rank=rank, size=3) for rank in range(3)]
    taken = [sum(int((batch.ids >= 0).sum()) for batch in loader) for loader in loaders]
    assert said["per_rank"]["samples"] == taken
    assert said["steps"] == len(loaders[0]) == 100
    assert (said["padding"], said["dropped"]) == (0, 0)
    assert said["plan"] == read_on(corpus, 1, 0)["plan"]
    assert said["world_sizes"] == [1, 2, 3, 4, 6, 8, 12, 24]
    for loader, nbytes in zip(loaders, said["per_rank"]["bytes"], strict=True):
        read = loader._opened_data.readers[0].bytes_read
        assert abs(read - nbytes) / read < 0.1
    shown = data(*words)
    assert shown.code == 0
    *_, first, second, third = shown.out.splitlines()
    assert [line.split()[0] for line in (first, second, third)] == ["0", "1", "2"]
    assert "the same batches on 1, 2, 3, 4, 6, 8, 12, 24 ranks" in shown.out


def test_the_picture_shows_who_reads_what(data: Callable[..., Said], corpus: Path) -> None:
    """Without a shuffle, a stream is a stretch of the corpus; what all ranks read together is all of it."""
    words = ("plan", corpus, "--ranks", 4, "--batch", 64, "--streams", 4, "--no-shuffle")
    *_, first, _, _, last = data(*words).out.splitlines()
    assert first == "     0 " + "█" * 16
    assert last == "     3 " + " " * 48 + "█" * 16


def test_a_plan_of_many_ranks_is_told_in_short(data: Callable[..., Said], corpus: Path) -> None:
    said = data("plan", corpus, "--ranks", 10_000, "--batch", 20_000)
    assert said.code == 0
    assert "of 10,000 ranks; the others are alike" in said.out
    assert len(said.out.splitlines()) < 60
    assert re.search(r"note: \d+ streams? for 10,000 ranks, so several ranks read the same", said.out)
    whole = data("plan", corpus, "--ranks", 10_000, "--batch", 20_000, "--json").document
    assert sum(whole["per_rank"]["samples"]) == 2400
    assert whole["padding"] == 20_000 - 2400


def test_audit_proves_that_all_attempts_together_read_each_sample_once(
    data: Callable[..., Said], corpus: Path, run: Path
) -> None:
    """Over 4, 3, 1 and 2 ranks, and the end of an epoch; without the data, counts and places alone are known."""
    words = ("--data", corpus, "--block-bytes", 4096)
    said = data("audit", run, *words)
    assert said.code == 0, said.out
    assert "The ledger holds" in said.out
    assert "Each step of the training took 24 rows." in said.out
    assert "Epoch 0 ended on the way" in said.out
    document = data("audit", run, *words, "--json").document
    places = [(one["step"], one["epoch"], one["samples"]) for one in document["states"]]
    assert places == [(30, 0, 720), (60, 0, 1440), (110, 1, 240)]
    assert all(one["compared"] == "yes" for one in document["states"])
    bare = data("audit", run)
    assert bare.code == 0
    assert "--data PATTERN proves" in bare.out


def test_the_data_set_of_a_program_may_be_named(
    data: Callable[..., Said], corpus: Path, run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A mixture, too, whose plan no pattern tells: sums are compared, and a wrong one found."""
    (tmp_path / "program_of_data.py").write_text(f"""
import allranks
data = allranks.Dataset.jsonl({str(corpus)!r}, seed=3, block_bytes=4096).batch(24)
def mixture():
    parts = [(allranks.Dataset.jsonl({str(corpus)!r} + f"/{{n}}.jsonl", block_bytes=512), n + 1) for n in (0, 2)]
    return allranks.Dataset.mix(parts).batch(12, streams=4)
""")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    said = data("audit", run, "--data", "program_of_data:data")
    assert "The ledger holds" in said.out
    plan = data("plan", "program_of_data:data", "--ranks", 3, "--json").document
    assert (plan["plan"], plan["batch"]) == (read_on(corpus, 1, 0)["plan"], 24)
    mixture = importlib.import_module("program_of_data").mixture()
    [world] = allranks.SimulatedWorld(1).run(lambda world: world).values()
    loader = mixture.loader(world)
    for step, _ in zip((1, 2, 3), loader, strict=False):
        save(LocalStorage(tmp_path / "mixed"), step, Tree({"w": np.zeros(4)}), extra=[loader.state().gathered()])
    assert data("audit", tmp_path / "mixed", "--data", "program_of_data:mixture").code == 0
    assert "of a mixture: not compared" in data("audit", tmp_path / "mixed", "--data", corpus).out
    wrong = {**loader.state().gathered(), "seen": [48, "0" * 16, 0]}
    save(LocalStorage(tmp_path / "mixed"), 4, Tree({"w": np.zeros(4)}), extra=[{**wrong, "depth": wrong["depth"] + 3}])
    said = data("audit", tmp_path / "mixed", "--data", "program_of_data:mixture")
    assert said.code == 1
    assert "step 4: 48 samples were taken, but not those of the plan" in said.out


@pytest.mark.parametrize(
    ("what", "says"),
    [
        ("swapped", "but not those of the plan: some twice, others never"),
        ("lost", "719 samples were taken, and 720 lie before this place"),
        ("again", "it does not go on from step 60, at epoch 0, depth "),
        ("seed", "another plan than at step 60 (seed: 3, 4)"),
        ("part", "it is what one rank knew, not the state of all"),
        ("none", "step 70 has no state at extra/data"),
    ],
)
def test_audit_finds_what_does_not_hold(
    what: str, says: str, data: Callable[..., Said], corpus: Path, run: Path
) -> None:
    state = read_on(corpus, 1, 30)
    samples, mixed, bad = state["seen"]
    planted: dict[str, Any] = {
        "swapped": {**state, "seen": [samples, f"{int(mixed, 16) ^ 1:016x}", bad]},
        "lost": {**state, "seen": [samples - 1, mixed, bad]},
        "again": state,
        "seed": {**state, "plan": "0" * 16, "of": {**state["of"], "seed": 4}},
        "part": {**state, "part": [0, 4]},
        "none": None,
    }
    save(LocalStorage(run), 70, Tree({"w": np.zeros(4)}), extra={"data": planted[what]})
    said = data("audit", run, "--data", corpus, "--block-bytes", 4096)
    assert said.code == 1
    assert says in said.out
    assert "The ledger does NOT hold." in said.out


def test_audit_says_how_other_data_differs(data: Callable[..., Said], corpus: Path, run: Path) -> None:
    (corpus / "1.jsonl").write_text('{"id": -1}\n')
    said = data("audit", run, "--data", corpus, "--block-bytes", 4096)
    assert said.code == 1
    assert "the data is not that of the state (" in said.out
    assert "samples: 2400 in the state, 2401 here" in said.out


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["index", "{here}/none/*.jsonl"], "no file matches"),
        (["show", "{here}/mixed"], "expected files of one kind, found 1 .jsonl, 1 .txt. Give --kind jsonl"),
        (["index", "{here}/corpus/1.jsonl"], "no file has a sample"),
        (["plan", "{here}/corpus", "--ranks", "3", "--batch", "64"], "does not divide over 3 ranks. Use 1, 2"),
        (["plan", "{here}/corpus", "--ranks", "2", "--batch", "64", "--streams", "7"], "streams=7 does not divide"),
        (
            ["show", "{here}/pictures", "--kind", "folder", "--block-bytes", "9"],
            "--block-bytes: expected files of the kind jsonl or text or tokens, found folder",
        ),
        (["plan", "{here}/corpus", "--ranks", "2"], "Give --batch ROWS"),
        (["plan", "json:dumps_all", "--ranks", "2"], "json:dumps_all: module 'json' has no attribute 'dumps_all'"),
        (
            ["plan", "json:decoder", "--ranks", "2"],
            "json:decoder: expected an allranks.Dataset or a function that returns one, found a module",
        ),
        (["audit", "{here}/none"], "has no checkpoint"),
        (
            ["audit", "{here}/bare"],
            "has the state of a loader. Save the state of the loader: ckpt.maybe_save(step, state, extra=",
        ),
    ],
)
@pytest.mark.usefixtures("corpus")
def test_data_that_cannot_be_used_is_one_line_and_exit_code_2(
    words: list[str], says: str, data: Callable[..., Said], tmp_path: Path
) -> None:
    (tmp_path / "mixed").mkdir()
    for name in ("a.jsonl", "b.txt"):
        (tmp_path / "mixed" / name).write_text("{}\n")
    save(LocalStorage(tmp_path / "bare"), 1, Tree({"w": np.zeros(4)}), extra={"data": {"epoch": 1}})
    said = data(*(word.format(here=tmp_path) for word in words))
    assert (said.code, said.out) == (2, "")
    assert said.err.startswith("allranks: ")
    assert says in said.err
    assert said.err.count("\n") == 1


@pytest.mark.needs("pyarrow")
@pytest.mark.needs("array_record")
def test_the_suffixes_that_tell_a_kind_are_those_that_its_source_reads() -> None:
    for kind, suffixes in SUFFIXES.items():
        assert set(suffixes) <= set(open_source(kind, "x").format.suffixes)


def test_tokens_are_indexed_shown_checked_and_planned(data: Callable[..., Said], tmp_path: Path) -> None:
    """The windows of nanoGPT's files; a token that the vocabulary does not have is named."""
    numbers = np.arange(10_000, dtype=np.uint16)
    numbers.tofile(tmp_path / "train.bin")
    words = (tmp_path / "train.bin", "--kind", "tokens", "--length", 64, "--cache", tmp_path / "cache")
    assert data("index", *words, "--targets", "--json").document["samples"] == 156
    shown = data("show", *words, "--targets", "--sample", 1)
    assert "a sample: tokens int64[64], targets int64[64]" in shown.out
    assert "[1, 2, 3, 4, " in shown.out
    assert data("show", *words, "--check", "--vocab-size", 10_000).code == 0
    bad = data("show", *words, "--check", "--vocab-size", 9_000)
    assert bad.code == 2
    assert "train.bin: " in bad.err
    assert "expected 0 to 8,999" in bad.err
    planned = data("plan", *words, "--ranks", 2, "--batch", 12, "--json").document
    loader = allranks.Dataset.tokens(tmp_path / "train.bin", length=64).batch(12).loader(rank=0, size=2)
    assert planned["steps"] == len(loader) == 13
    documents = data("index", tmp_path, "--kind", "tokens", "--eos-id", 500, "--cache", tmp_path / "other", "--json")
    assert documents.document["samples"] == 2


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--kind", "tokens"), "so its documents are not known"),
        (("--length", 8), "expected files of one kind, found 1 .bin"),
        (("--kind", "litdata", "--length", 8), "--length: expected files of the kind tokens, found litdata"),
        (("--kind", "jsonl", "--eos-id", 8), "--eos-id: expected files of the kind tokens, found jsonl"),
    ],
)
def test_options_of_tokens_that_do_not_fit(
    data: Callable[..., Said], tmp_path: Path, words: tuple[object, ...], says: str
) -> None:
    np.arange(100, dtype=np.uint16).tofile(tmp_path / "a.bin")
    said = data("index", tmp_path / "a.bin", "--cache", tmp_path, *words)
    assert said.code == 2
    assert says in said.err
