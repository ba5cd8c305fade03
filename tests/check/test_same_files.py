"""Files that every rank may write: its own by their names, locks, or the same whoever writes them."""

from __future__ import annotations

import pytest

from allranks.check.engine import Settings, check

START = """\
import fcntl
import os
import shutil
from pathlib import Path

import torch
import torch.distributed as dist
"""
JOIN = '\ndist.init_process_group("nccl")\n'


def told(body: str, call: str, **more: str) -> list[tuple[str, str]]:
    files = {"train.py": START + body + JOIN + call} | {f"{name}.py": text for name, text in more.items()}
    raw = {name: text.encode() for name, text in files.items()}
    return [(f.code, f.confidence) for f in check(raw, Settings(select=("AR101", "AR102"))).findings]


LOCKED = """
def fetch(path):
    with open(path + ".guard", "w") as file:
        {lock}
        print(path)
"""


@pytest.mark.parametrize(
    ("lock", "expected"),
    [("fcntl.flock(file.fileno(), fcntl.LOCK_EX)", []), ("os.fsync(file.fileno())", [("AR102", "high")])],
)
def test_a_file_that_is_opened_to_be_locked(lock: str, expected: list[tuple[str, str]]) -> None:
    assert told(LOCKED.format(lock=lock), 'fetch("x")\n') == expected


COPIED = """
def keep(given, folder):
    if {asked}:
        shutil.copy(given, os.path.join(folder, "{name}"))
"""


@pytest.mark.parametrize(
    ("asked", "name", "expected"),
    [
        ('not os.path.exists(os.path.join(folder, "model.yml"))', "model.yml", "low"),
        ('not os.path.exists(os.path.join(folder, "model.pt"))', "model.pt", "high"),
        ("given", "model.yml", "high"),
    ],
)
def test_a_small_text_is_copied_to_where_there_is_none(asked: str, name: str, expected: str) -> None:
    assert told(COPIED.format(asked=asked, name=name), 'keep("a", "b")\n') == [("AR102", expected)]


def test_an_empty_file_is_the_same_whoever_makes_it() -> None:
    assert told("", 'Path("done").touch()\n') == []
    assert told("", 'Path("done").write_text("")\n') == [("AR102", "high")]


NAMED = """
class Worker:
    def path(self, step):
        return f"{{self.folder}}/{{step}}_{{self.{number}}}.pt"

    def save(self, x, step):
        path = self.path(step)
        torch.save(x, path)
"""


@pytest.mark.parametrize(("number", "expected"), [("replica_id", []), ("model_id", [("AR101", "high")])])
def test_a_copy_of_the_model_has_files_of_its_own(number: str, expected: list[tuple[str, str]]) -> None:
    assert told(NAMED.format(number=number), "Worker().save(1, 2)\n") == expected


ROLLED_OUT = """
def forecast(parts):
    for batch in parts:
        names = [str(t) for t in batch["{key}"]]
        open(f"{{names[0]}}.csv", "w")
"""


@pytest.mark.parametrize(("key", "expected"), [("datetime", []), ("variables", [("AR102", "high")])])
def test_a_sample_is_named_after_its_time(key: str, expected: list[tuple[str, str]]) -> None:
    assert told(ROLLED_OUT.format(key=key), "forecast(make())\n") == expected


PUSHES = """\
from {library} import *

class MyTrainer(Trainer):
    def save_model(self, folder):
        self.push_to_hub(commit_message="save")
"""


@pytest.mark.parametrize(("library", "expected"), [("transformers.trainer", []), ("transformers.trainer, utils", None)])
def test_a_class_of_a_library_that_is_imported_whole(library: str, expected: list[str] | None) -> None:
    text = PUSHES.format(library=library.partition(",")[0])
    text = "from utils import *\n" + text if expected is None else text
    found = check({"trainer.py": text.encode()}, Settings(select=("AR102",), assume="multi-host")).findings
    assert bool(found) is (expected is None)


def test_settings_are_no_checkpoint() -> None:
    body = (
        "from omegaconf import OmegaConf\n\ndef train_model(config, path):\n    OmegaConf.save(config=config, f=path)\n"
    )
    assert told(body, 'train_model(1, "a")\n') == [("AR102", "high")]
