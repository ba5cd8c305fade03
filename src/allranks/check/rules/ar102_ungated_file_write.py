"""AR102: every rank writes the same file."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import replace

from allranks.check.interpret.values import PROCESS
from allranks.check.program import Event, Program
from allranks.check.rule import Example, ProgramRule
from allranks.check.tables.effects import Effect
from allranks.check.tables.evidence import JOINED
from allranks.check.tree.asked_there import Files, call_at
from allranks.check.tree.log_levels import logs_less_elsewhere
from allranks.check.tree.syntax import inside, tail_of
from allranks.findings import Finding

# A function that uses a model that has been trained, and is no hook that a framework calls on all.
_USES = re.compile(
    r"^_*((test|infer|inference|predict)(_(?!step|epoch|end|start|begin|batch)\w+)?|save_(inference|prediction)\w*)$"
)
# The end of an expression: a path of what people write, and read.
_TEXT = re.compile(r"\.(ya?ml|json|toml|cfg|ini|conf|txt|md|py|sh)['\"]\)*$")
# A path that the launcher gives, or that lies on the node by its name.
_GIVEN = re.compile(r"^(os\.)?(environ\b|getenv\()")
_OF_NODE = re.compile(r"^f?['\"]/(tmp|dev/shm)/")

# A lock: that it is there counts, and not what is in it.
_LOCK = re.compile(r"\.lock['\"]\)*$")

_MODE = re.compile(r"[rwxabt+]{1,3}")  # how a file is opened


class UngatedFileWrite(ProgramRule):
    """
    ## What it does
    Finds a file (a log, a table, a figure, a JSON file) that every process writes under the same name, or uploads.

    ## Why is this bad
    The processes overwrite each other, or their lines are mixed.

    ## What happens with N processes
    N processes open one file. With mode `w` the last one to open it truncates what the others wrote. With mode `a` each
    line is in the file N times, in no order.

    ## Known problems
    A path that only the launcher makes different for each process is not seen. Declare it with `node-local-paths`.

    A log that all ranks append to is not reported if the same function gives the ranks above 0 another level, or a
    filter that checks the rank. Confidence is low for:

    - other files that all ranks append to: of 31 such findings in public code 14 were right
    - writes of a function that, by its name, tests a model or predicts with it, mostly in one process
    - writes of a layer over file systems and buckets (a module `io.py`, a class `FileSystem`): of 7 such findings none
      was right
    - a path that is node-local by its name or comes from an environment variable; a lock file
    - writes of a tool that ends before it has joined other processes

    ## Use instead
    Write on rank 0, or put the rank into the name.

    ## Fix safety
    There is no automatic fix.
    """

    code, name, severity, row = "AR102", "ungated-file-write", "warning", "gating"
    cluster = "N processes write this file at the same time: they overwrite each other, or their lines are mixed."
    advice = "Write on rank 0 only, or put the rank into the file's name."
    bad = (
        Example(
            {
                "train.py": """\
import json
import jax

jax.distributed.initialize()
with open("metrics.json", "w") as file:
    json.dump({}, file)
"""
            },
            at=(5,),
        ),
        Example(
            {
                "train.py": """\
from accelerate import Accelerator
from huggingface_hub import upload_folder

def main(step):
    accelerator = Accelerator()
    if step % 100 == 0:
        upload_folder(repo_id="me/model", folder_path="out")
"""
            },
            at=(7,),
        ),
    )
    good = (
        Example(
            {
                "train.py": """\
from accelerate import Accelerator
from huggingface_hub import upload_folder

accelerator = Accelerator()
if accelerator.is_main_process:
    upload_folder(repo_id="me/model", folder_path="out")
"""
            }
        ),
        Example(
            {
                "train.py": """\
import logging
import torch.distributed as dist
from loguru import logger


def say(line):
    print(line)


def is_first(record):
    return dist.get_rank() == 0


def start_log(path):
    handler = logging.FileHandler(path)
    if dist.get_rank() == 0:
        handler.setLevel(logging.INFO)
    else:
        handler.setLevel(logging.ERROR)
    logging.getLogger().addHandler(handler)


def start_other(path, level="INFO"):
    if dist.get_rank() != 0:
        level = "CRITICAL"
    logging.basicConfig(level=level, filename=path)


dist.init_process_group("nccl")
start_log("train.log")
start_other("other.log")
logger.add(say)
logger.add("filtered.log", filter=lambda record: is_first(record))
with open("known.json", "r+") as file:
    print(file.read())
"""
            }
        ),
        Example(
            {
                "train.py": """\
import jax

jax.distributed.initialize()
if jax.process_index() == 0:
    open("metrics.json", "w")
open(f"log-{jax.process_index()}.txt", "w")
open("config.json")
"""
            }
        ),
    )

    def check(self, program: Program) -> Iterator[Finding]:
        inside = {event.opened for event in program.effects() if event.opened is not None}
        checkpoints = {e.opened for e in program.effects("checkpoint") if e.opened is not None}
        files = Files(program.facts.lines)
        for event in program.ungated("file", "append"):
            if event.name.endswith(".touch"):  # an empty file is the same, whoever makes it
                continue
            if event.name == "print" or event.holds_state:  # into what was opened: told there; a checkpoint: AR101
                continue
            if _stays_empty(event, files):
                continue
            # One finding a file: where it is opened; the checkpoint that is written into it is another rule's.
            if (event.opened is None and event.place not in checkpoints) or (
                event.opened is not None and event.opened not in inside
            ):
                what = f"runs {event.command}" if event.command else f"writes the file {event.target or event.name}"
                found = self.found(event, f"every rank {what}")
                low = program.finds_done(event) or _fills_up(event) or _appends(event) or _uses_model(event)
                low = low or _is_elsewhere(event) or _is_lock(event) or _ends_with_it(event, files)
                yield replace(found, confidence="low") if low else found
        for event in program.ungated("publish"):
            if not event.name.endswith("create_repo"):  # a second one finds it there
                found = self.found(event, f"every rank uploads by {event.name.removeprefix('*.')}")
                yield replace(found, confidence="low") if event.of_a_store else found


def _stays_empty(event: Event, files: Files) -> bool:
    """Whether a log is opened to append to, and all ranks but the first log hardly anything."""
    mode = event.argument(1, "mode", "filemode")
    if not event.name.startswith(("logging.", "loguru.")) or (mode is not None and mode.constant != "a"):
        return False
    file = files.file(event.place.path)
    return file is not None and logs_less_elsewhere(event.place.line, file)


def _is_lock(event: Event) -> bool:
    return _LOCK.search(event.target) is not None


def _ends_with_it(event: Event, files: Files) -> bool:
    """Whether a branch writes a file and ends the process, which has joined no other one."""
    if event.earlier & JOINED or event.passed or (found := call_at(event.place, files)) is None:
        return False
    ways = ((parent, child) for parent, child in inside(*found) if isinstance(parent, ast.If))
    ends = (branch.body[-1] for branch, child in ways if child in branch.body)
    calls = (end.value for end in ends if isinstance(end, ast.Expr) and isinstance(end.value, ast.Call))
    return any(tail_of(call) in ("exit", "_exit", "quit") for call in calls)


def _appends(event: Event) -> bool:
    """Whether all add lines to one file: often on purpose, with their rank in each line, or each for its own items."""
    mode = event.argument(1, "mode", "filemode")
    said = mode.constant if mode is not None else None
    if isinstance(said, str) and _MODE.fullmatch(said):
        return "a" in said
    return isinstance(event.entry, Effect) and event.entry.kind == "append"


def _is_elsewhere(event: Event) -> bool:
    """Whether the path is most likely another one for each process that comes there, or for each node: the callers of a
    store, or the launcher, say so, or its name."""
    return (
        event.of_a_store or event.in_local_folder or bool(_GIVEN.search(event.target) or _OF_NODE.search(event.target))
    )


def _uses_model(event: Event) -> bool:
    """Whether a function, by its name, tests a model or predicts with it: mostly in one process."""
    return _USES.search(event.symbol.rpartition(".")[2]) is not None


def _fills_up(event: Event) -> bool:
    """Whether a small text is copied to where none was found: whoever comes first, it is the same."""
    copies = event.name.startswith("shutil.copy") and bool(event.under & PROCESS)
    return copies and _TEXT.search(event.target) is not None
