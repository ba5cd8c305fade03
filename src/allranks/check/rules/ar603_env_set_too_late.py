"""AR603: an environment variable is set after it was read."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from allranks.check.program import Program
from allranks.check.rule import Example, LocalRule, ProgramRule
from allranks.check.sources.source import File
from allranks.check.survey.startup import At, Moment
from allranks.check.tables.backend import AT_JOINING, READ_BY
from allranks.check.tree.earlier import DEEPEST, callers, earlier
from allranks.check.tree.syntax import calls_of, distributed, function_of, given, keyword, name_of, tail_of
from allranks.findings import Finding, Note
from allranks.names.variables import NAMES

_IMPORTED = "JAX reads it when it is imported"
_STARTS_OTHERS = re.compile(r"subprocess|Popen|\bspawn\(|init_method|store=")
# NCCL reads its settings when the first communicator is made, in the first meeting at the latest.
_NCCL = ("NCCL_", "TORCH_NCCL_")
_MEETS = frozenset(["barrier", "all_reduce", "all_gather", "broadcast", "broadcast_object_list", "wait_for_everyone"])


class EnvSetTooLate(LocalRule, ProgramRule):
    """
    ## What it does
    Finds variables that are set below what reads them: `JAX_...` after `import jax`; `XLA_FLAGS` after the first use
    of a device; `CUDA_VISIBLE_DEVICES` after CUDA has started; `MASTER_ADDR` after `init_process_group`;
    `NCCL_...` after the first collective.

    ## Why is this bad
    They are read once. A value that is set later is ignored, without a message.

    ## What happens with N processes
    The timeout, the device or the network card is the default one. With `CUDA_VISIBLE_DEVICES`, all ranks of a host use
    the same GPU.

    ## Known problems
    The calls of a program before that line are followed through its files, but not through methods of objects. For
    `NCCL_...`, only statements of one file are compared.

    It has been seen rarely; when each variable is read was measured.

    ## Use instead
    Set it in the launch command (`allranks run` does), or in the first lines of the program above all imports.
    """

    code, name, severity, row = "AR603", "env-set-too-late", "error", "initialisation"
    cluster = "The setting is ignored on every rank, without a message."
    advice = "Set the variable before the import or call that reads it, best where the processes are launched."
    words = ("environ",)
    nodes = (ast.Assign, ast.Call)
    calls = ("os.environ.setdefault",)
    bad = (
        Example({"train.py": "import os\n\nimport jax\n\nos.environ['JAX_ENABLE_X64'] = '1'\n"}, at=(5,)),
        Example(
            {
                "train.py": """\
import os
import jax


def main():
    print(jax.devices())
    os.environ["XLA_FLAGS"] = "--xla_gpu_autotune_level=0"
"""
            },
            at=(7,),
        ),
        Example(
            {
                "train.py": """\
import os
import torch


def main(gpu):
    torch.cuda.set_device(0)
    os.environ["CUDA_VISIBLE_DEVICES"] = str(gpu)
"""
            },
            at=(7,),
        ),
        Example(
            {
                "train.py": """\
import os
import torch.distributed as dist


def start():
    os.environ["NCCL_DEBUG"] = "WARN"
    dist.init_process_group("nccl")
    dist.barrier()
    os.environ["NCCL_IB_TIMEOUT"] = "22"
"""
            },
            at=(9,),
        ),
        # In each process that is spawned, and by a function of its own.
        Example(
            {
                "train.py": """\
import os
import torch.distributed as dist
import torch.multiprocessing as mp


def address():
    os.environ["MASTER_ADDR"] = "127.0.0.1"


def join(rank, world):
    dist.init_process_group("nccl", init_method="env://", rank=rank, world_size=world)


def worker(rank, world):
    join(rank, world)
    address()
    os.environ["MASTER_PORT"] = "29500"


if __name__ == "__main__":
    mp.spawn(worker, args=(4,), nprocs=4)
"""
            },
            at=(7, 17),
        ),
        Example(
            {
                "gpu.py": """\
import os
import torch
from accelerate import PartialState


def pin():
    state = PartialState()
    os.environ["CUDA_VISIBLE_DEVICES"] = str(state.local_process_index)


def alone():
    torch.zeros(1, device="cuda")
    os.environ["CUDA_VISIBLE_DEVICES"] = "0"
"""
            },
            at=(8, 13),
        ),
    )
    good = (
        Example({"train.py": "import os\n\nos.environ['JAX_ENABLE_X64'] = '1'\nimport jax\n"}),
        Example({"train.py": "import os\nimport jax\n\nos.environ['XLA_FLAGS'] = ''\nprint(jax.devices())\n"}),
        Example({"train.py": "import os\nimport jax\n\nos.environ['JAX_COORDINATOR_ADDRESS'] = 'a:1'\n"}),
        Example(
            {
                "train.py": """\
import os
import jax

os.environ["JAX_ENABLE_X64"] = "1"
jax.config.update("jax_enable_x64", True)
"""
            }
        ),
        # For processes that are started from here.
        Example(
            {
                "train.py": """\
import os
import subprocess
import torch

torch.cuda.set_device(0)
os.environ["CUDA_VISIBLE_DEVICES"] = "1"
subprocess.run(["python", "train.py"])
"""
            }
        ),
        Example(
            {
                "train.py": """\
import os
import torch
import torch.distributed as dist
import torch.multiprocessing as mp


def worker(rank, world):
    dist.init_process_group("nccl", init_method="tcp://127.0.0.1:29500", rank=rank, world_size=world)
    os.environ["MASTER_ADDR"] = "127.0.0.1"


def start(world):
    torch.cuda.set_device(0)
    os.environ["CUDA_VISIBLE_DEVICES"] = "1"
    mp.spawn(worker, args=(world,), nprocs=world)
"""
            }
        ),
        # It is what it was.
        Example(
            {
                "train.py": """\
import os

os.environ["JAX_PLATFORMS"] = "cpu"
import jax

os.environ["JAX_PLATFORMS"] = "cpu"
"""
            }
        ),
    )

    def visit(self, node: ast.AST, file: File) -> Iterator[Finding]:
        name = _variable(node, file)
        if name is None or _starts_others(node, file):
            return
        reader: ast.AST | None = None
        why = ""
        if name in NAMES["JAX_"] and name not in AT_JOINING and name.lower() not in file.text:
            reader, why = _import_above(node, file), _IMPORTED
        elif name in READ_BY:
            calls, why = READ_BY[name]
            of_gpu = name == "CUDA_VISIBLE_DEVICES" and "torch" in file.text
            reader = earlier(
                node,
                file,
                lambda at: (
                    (name_of(at, file) in calls and not _has_address(at, name)) or (of_gpu and _goes_to_gpu(at, file))
                ),
            )
        elif name.startswith(_NCCL):
            why = "NCCL has read it at the first collective"
            reader = earlier(node, file, lambda at: _is_meeting(at, file))
        if reader is not None:
            yield self.finding(
                file.place(node),
                file.symbol(node),
                f"{name} is set too late: {why}, above",
                notes=[Note("read here", file.place(reader))],
            )

    def stands(self, finding: Finding, program: Program) -> bool:
        lines = program.facts.lines[finding.place.path]
        return not _is_said_again(finding.place.line, lines) and not _is_simulated(finding.message, "\n".join(lines))

    def check(self, program: Program) -> Iterator[Finding]:
        """Look at what programs certainly do before they set a variable in another file."""
        for moment in program.facts.moments:
            reader, why = _read_before(moment)
            text = "\n".join(program.facts.lines[moment.at.path])
            if reader is None or moment.name.lower() in text or _STARTS_OTHERS.search(text):
                continue
            if _is_simulated(moment.name, text):
                continue
            if _is_said_again(moment.at.span[0], program.facts.lines[moment.at.path]):
                continue
            place, symbol = program.facts.stands(moment.at)
            note = Note("read here", program.facts.stands(reader)[0])
            yield self.finding(place, symbol, f"{moment.name} is set too late: {why}, before", notes=[note])


def _is_said_again(at: int, lines: list[str]) -> bool:
    """Whether the same stands at top level further up in the file: that is early enough, or told there."""
    said = lines[at - 1].strip()
    return "environ" in said and any(line.rstrip() == said for line in lines[: at - 1])


def _is_simulated(told: str, text: str) -> bool:
    """JAX is told to use the CPU in a file that has it act as several devices: one process, by itself."""
    return told.startswith("JAX_PLATFORM") and "xla_force_host_platform_device_count" in text


def _read_before(moment: Moment) -> tuple[At | None, str]:
    """Return where the variable that is set has been read, and why."""
    if not moment.sets:
        return None, ""
    if moment.name in NAMES["JAX_"] and moment.name not in AT_JOINING:
        return moment.before.get("import jax"), _IMPORTED
    calls, why = READ_BY.get(moment.name, (frozenset[str](), ""))
    return next((at for name, at in moment.before.items() if name in calls), None), why


def _goes_to_gpu(call: ast.Call, file: File) -> bool:
    """``model.cuda()``, ``torch.zeros(1, device="cuda")``"""
    device = keyword(call, "device")
    given_it = isinstance(device, ast.Constant) and isinstance(device.value, str) and device.value.startswith("cuda")
    made = given_it and (file.qualified(call.func) or "").startswith("torch.")
    return made or (isinstance(call.func, ast.Attribute) and call.func.attr == "cuda" and not call.keywords)


def _is_meeting(call: ast.Call, file: File) -> bool:
    return tail_of(call) in _MEETS and distributed(file) and "torch" in file.text


def _has_address(call: ast.Call, name: str) -> bool:
    """It is told where to meet, and reads no variable for that: ``init_method="tcp://..."``"""
    method = given(call, 1, "init_method")
    told = isinstance(method, ast.Constant) and isinstance(method.value, str) and not method.value.startswith("env://")
    return name.startswith("MASTER_") and (told or keyword(call, "store") is not None)


def _starts_others(node: ast.AST, file: File) -> bool:
    """This process may start others, which read what it sets: any that starts some, but not one that was spawned."""
    if "subprocess" in file.text or "Popen" in file.text:
        return True
    return ".spawn(" in file.text and not _is_spawned(node, file)


def _is_spawned(node: ast.AST, file: File, depth: int = 0) -> bool:
    """``node`` runs in processes only that this file spawns: in the function they start with, or called from it."""
    function, spawns = function_of(node, file), calls_of(file).get("spawn", ())
    if function is None or depth > DEEPEST or any(function_of(at, file) is function for at in spawns):
        return False
    calls, first = callers(function, file), [given(at, 0, "fn") for at in spawns]
    starts = any(isinstance(at, ast.Name) and at.id == function.name for at in first)
    return (starts or bool(calls)) and all(_is_spawned(call, file, depth + 1) for call in calls)


def _variable(node: ast.AST, file: File) -> str | None:
    """Return the variable that a statement sets to something else than itself."""
    key: ast.AST | None = None
    if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Subscript):
        target = node.targets[0]
        key = target.slice if name_of(target.value, file) == "os.environ" else None
    elif isinstance(node, ast.Call) and name_of(node, file) == "os.environ.setdefault" and node.args:
        key = node.args[0]
    return key.value if isinstance(key, ast.Constant) and isinstance(key.value, str) else None


def _import_above(node: ast.AST, file: File) -> ast.stmt | None:
    """Return the import of jax at top level above ``node``, which must be at top level too, or in a function."""
    for statement in file.tree.body:
        if statement.lineno >= getattr(node, "lineno", 0):
            return None
        if isinstance(statement, ast.Import) and any(a.name.split(".")[0] == "jax" for a in statement.names):
            return statement
        if (
            isinstance(statement, ast.ImportFrom)
            and (statement.module or "").split(".")[0] == "jax"
            and not statement.level
        ):
            return statement
    return None
