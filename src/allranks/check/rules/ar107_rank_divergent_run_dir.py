"""AR107: each rank names the folder of the run for itself."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from allranks.check.interpret.values import IDENTITY, RANKS, Value
from allranks.check.program import Event, Program
from allranks.check.rule import Example, ProgramRule
from allranks.check.survey.folders import makes_folder
from allranks.check.survey.own_folders import (
    divergent,
    drawn_by_each,
    found_by_each,
    is_of_another_program,
    is_of_each,
    is_on_own_disk,
    made_for_one,
)
from allranks.check.tables.effects import Kind
from allranks.findings import Finding, Note

_SAVES = re.compile(r"checkpoint|^CheckpointManager$")
_TOGETHER = "is told a folder whose name"
_FOLDERS = re.compile(r"(?i)path|dir|folder|checkpoint_id|root")
_WORD = re.compile(r"\w+")


class RankDivergentRunDir(ProgramRule):
    """
    ## What it does
    Finds a name from a clock, a random number or a listing that each process takes for itself:

    - for a directory that every process makes, or a checkpoint that all save together
    - in a loop in which every process searches for the first free name of a folder, which all or rank 0 then make
    - for files that all write into a folder that only rank 0 makes, under a name from each rank's own clock

    With low confidence: such a name as the folder of a run (`output_dir`, `run_id`,
    `TrainingArguments(output_dir=...)`), and a folder that a program of JAX makes below its working folder. Each host
    of a TPU pod has its own working folder.

    ## Why is this bad
    Processes start at slightly different times. A name with seconds in it, or the number of existing runs, differs
    between them.

    ## What happens with N processes
    One run leaves several folders, each with some of its files. A checkpoint whose shards are in two folders cannot be
    loaded.

    ## Known problems
    A name that only rank 0 uses in the end is reported as well. A name that `strftime` makes from the date only is not
    reported: it differs at midnight only.

    ## Use instead
    Let rank 0 choose the name and broadcast it, or take it from the launcher (an environment variable, an option).

    ## Fix safety
    There is no automatic fix: which collective can be used depends on what is initialised there.
    """

    code, name, severity, row = "AR107", "rank-divergent-run-dir", "warning", "checkpoint save"
    cluster = "Ranks that start a second apart choose different folders, and the files of a run are divided among them."
    advice = "Choose the name on rank 0 and broadcast it, or let the launcher pass it to all."
    bad = (
        Example(
            {
                "train.py": """\
import os
import time
import jax
import orbax.checkpoint as ocp
import torch.distributed.checkpoint as dcp

jax.distributed.initialize()
run = os.path.join("runs", time.strftime("%H%M%S"))
manager = ocp.CheckpointManager(os.path.join(run, "ckpt"))
dcp.save({}, checkpoint_id=run)
"""
            },
            at=(9, 10),
        ),
        Example(
            {
                "train.py": """\
import os
from datetime import datetime
import torch.distributed as dist

def main():
    dist.init_process_group("nccl")
    stamp = datetime.now().strftime("%m%d-%H%M%S")
    run = os.path.join("runs", stamp)
    os.makedirs(run, exist_ok=True)
"""
            },
            at=(9,),
        ),
        Example(
            {
                "train.py": """\
from glob import glob
from pathlib import Path
import torch.distributed as dist

dist.init_process_group("nccl")
run = Path(f"runs/{len(glob('runs/*')):03d}")
run.mkdir(parents=True, exist_ok=True)
"""
            },
            at=(7,),
        ),
        Example(
            {
                "train.py": """\
import os
import uuid
import torch.distributed as dist

dist.init_process_group("nccl")
run_id = str(uuid.uuid4())
os.makedirs("logs/%s" % run_id, exist_ok=True)
"""
            },
            at=(7,),
        ),
        Example(
            {
                "config.py": """\
from dataclasses import dataclass
from stamps import now

@dataclass
class Config:
    output_dir: str = ""

    def __post_init__(self):
        self.output_dir = f"outputs/{now()}"
        self.log_dir = self.output_dir + "/logs"
""",
                "stamps.py": """\
import datetime as dt

def now():
    return dt.datetime.now().strftime("%Y%m%d-%H%M%S")
""",
                "train.py": """\
import torch.distributed as dist
import draccus
from config import Config

dist.init_process_group("nccl")
work(draccus.parse(Config))
""",
            },
            at=(9,),
        ),
        Example(
            {
                "train.py": """\
import argparse
import time
import torch.distributed as dist
from paths import increment_path

def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--save-dir", default="runs/" + time.strftime("%m%d-%H%M%S"))
    dist.init_process_group("nccl")

def finetune(opt):
    dist.init_process_group("nccl")
    opt.save_dir = str(increment_path(opt.project))
"""
            },
            at=(8, 13),
        ),
        Example(
            {
                "train.py": """\
import os
import torch.distributed as dist

def choose(path, rank):
    count, chosen = 0, path
    while os.path.exists(chosen):
        count += 1
        chosen = f"{path}-{count}"
    if rank == 0:
        os.mkdir(chosen)
    return chosen

def begin(path):
    for count in range(100):
        if not os.path.isdir(f"{path}-{count}"):
            break
    folder = f"{path}-{count}"
    os.makedirs(folder, exist_ok=True)

def main(opt):
    dist.init_process_group("nccl")
    choose("runs/exp", dist.get_rank())
    begin("runs/log")
"""
            },
            at=(6, 15),
        ),
    )
    good = (
        Example(
            {
                "train.py": """\
import os
import torch.distributed as dist

def choose(path):
    chosen = path
    while os.path.exists(chosen):
        chosen += "_"
    os.makedirs(chosen, exist_ok=True)
    return chosen

def newest(folders):
    for folder in folders:
        if os.path.isdir(folder):
            break
    os.makedirs(folder, exist_ok=True)

def tell(path):
    while os.path.exists(path):
        path += "_"
    if dist.get_rank() == 0:
        os.mkdir(path)
    return path

def main(opt):
    dist.init_process_group("nccl")
    if dist.get_rank() == 0:
        choose("runs/exp")
    newest(opt.folders)
    names = [tell("runs/log")]
    dist.broadcast_object_list(names, src=0)
"""
            }
        ),
        Example(
            {
                "train.py": """\
import os
import jax
import orbax.checkpoint as ocp
import torch.distributed.checkpoint as dcp

jax.distributed.initialize()
manager = ocp.CheckpointManager(os.path.join("runs", os.environ["RUN"]))
dcp.save({}, checkpoint_id=f"runs/{os.environ['RUN']}")
"""
            }
        ),
        Example(
            {
                "train.py": """\
import os
import time
import torch.distributed as dist

def main(opt):
    dist.init_process_group("nccl")
    run_dir = os.path.join(opt.root, str(int(time.time())))
    chosen = [run_dir]
    dist.broadcast_object_list(chosen, src=0)
    save_dir = chosen[0]
    save_time = time.time()
"""
            }
        ),
        Example(
            {
                "train.py": """\
import os
import time
from datetime import date, datetime
import torch.distributed as dist

dist.init_process_group("nccl")
names = [time.strftime("%m%d-%H%M%S")]
dist.broadcast_object_list(names, src=0)
os.makedirs(names[0], exist_ok=True)
if dist.get_rank() == 0:
    os.makedirs(time.strftime("%m%d-%H%M%S"), exist_ok=True)
os.makedirs(f"{time.time()}-{dist.get_rank()}", exist_ok=True)
os.makedirs(f"{time.strftime('%m%d')}/{datetime.now().strftime('%Y-%m-%d')}/{date.today()}", exist_ok=True)
"""
            }
        ),
        # A fault (AR201), but nobody else names a folder.
        Example(
            {
                "train.py": """\
import time
from lightning.pytorch import Trainer

trainer = Trainer(devices=2, strategy="ddp")
if trainer.global_rank == 0:
    trainer.save_checkpoint(f"runs/{time.time()}/last.ckpt")
"""
            }
        ),
    )

    def check(self, program: Program) -> Iterator[Finding]:
        used = dict(_used(program))
        makers = {event.symbol for event, does in used.items() if does == "makes"}  # what is saved there is no other
        for event, does in ((e, d) for e, d in used.items() if d != "writes to" or e.symbol not in makers):
            found = self._named(event, program, does)  # Orbax saves arrays of NumPy on the first process alone
            unsure = event.name.startswith("orbax.") or program.finds_done(event)
            own = does == "makes" and is_on_own_disk(event, program.facts)
            yield replace(found, confidence="low") if unsure or own else found
        told = {event.symbol for event in used}
        for event in program.effects("free"):
            if event.active and event.everyone and event.symbol not in told and _is_taken(event, program):
                told.add(event.symbol)
                says = f"each rank searches for itself for {event.target}, a name that does not exist yet"
                yield self.found(event, f"{says}: a rank after rank 0 takes the next name")
        for event in program.effects("file", "append", "checkpoint"):
            if event.symbol not in told and (made := made_for_one(event, program)) is not None:
                told.add(event.symbol)
                says = f"each rank writes {event.target}, in a folder that only rank 0 makes and each rank names"
                yield self.found(event, says, notes=[Note("it is made here, on rank 0", made.place)])
        for event in program.effects("named"):
            new = event.active and event.everyone and event.symbol not in told
            if new and not is_of_each(event) and not _agreed(event, program):
                told.add(event.symbol)
                yield replace(self._named(event, program, "names"), confidence="low")

    def _named(self, event: Event, program: Program, what: str) -> Finding:
        sources = program.sources("clock", "random", "listing", "identity")
        before = [s for s in sources if s.symbol == event.symbol and s.place <= event.place]
        notes = [Note(f"{before[-1].name} differs from process to process", before[-1].place)] if before else []
        path = event.target or "a path"
        if what == _TOGETHER:
            return self.found(event, f"{path} {what} differs from rank to rank", notes=notes)
        told = f"each rank chooses {path} for itself" if what == "names" else f"each rank {what} {path}"
        return self.found(event, f"{told}, and the name differs from rank to rank", notes=notes)


def _used(program: Program) -> Iterator[tuple[Event, str]]:
    """Yield what all processes do under such a name."""
    sources = tuple(program.sources("clock", "random", "listing"))
    clocks = tuple(program.sources("clock"))
    for event in program.effects("mkdir", "folder", "checkpoint"):
        if (
            event.active
            and event.everyone
            and event.path is not None
            and "temporary" not in event.path.flags
            and (divergent(event.path.taint) or (makes_folder(event) and found_by_each(event, sources)))
            and not is_of_another_program(event, clocks, program.facts)
        ):
            yield event, "makes" if makes_folder(event) else "writes to"
    for event in program.effects("mkdir", "folder"):
        if event.active and event.everyone and event.path is not None and drawn_by_each(event, program):
            yield event, "makes"
    for event in program.collectives():
        together = event.active and event.may != {"first"}  # whom rank 0 alone calls, no other tells a name
        if together and _SAVES.search(event.op) and any(divergent(v.taint) for v in _folders(event)):
            yield event, _TOGETHER


def _is_taken(event: Event, program: Program) -> bool:
    """Whether the function then makes a folder of a name that was free, and nobody tells it to the others. Where each
    makes one that must not be there yet, AR108 tells of it."""
    if _agreed(event, program) or any(value.taint & (RANKS | IDENTITY) for value in event.arguments):
        return False
    caller = event.chain[-1:]
    sends = (c for c in program.collectives() if "broadcast_object" in c.op)
    if any(step.symbol == c.symbol and step.place < c.place for c in sends for step in caller):
        return False

    def made(*kinds: Kind) -> list[Event]:
        here = (e for e in program.effects(*kinds) if e.symbol == event.symbol and e.place > event.place)
        return [e for e in here if event.target in _WORD.findall(e.target)]

    return bool(made("mkdir", "folder")) and not any(e.everyone for e in made("mkdir"))


def _folders(event: Event) -> tuple[Value, ...]:
    """Return what may say where a checkpoint goes."""
    return (*event.arguments, *(value for name, value in event.keywords if _FOLDERS.search(name)))


def _agreed(event: Event, program: Program) -> bool:
    """Whether the processes tell each other something before the function that names a folder is done."""
    after = (c for c in program.collectives() if c.symbol == event.symbol and c.place > event.place)
    return any("broadcast" in c.op or "gather" in c.op for c in after)
