"""AR407: a checkpoint that a run resumes from leaves the optimizer out."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from allranks.check.rule import Example, LocalRule
from allranks.check.sources.source import File
from allranks.findings import Finding

_STEP = re.compile(r"^(epoch|step|iter|iteration|global_step|epochs_run|iter_num|start_epoch)s?$", re.IGNORECASE)
_MODEL = re.compile(r"model|state_dict|params|net|weights", re.IGNORECASE)
_OPTIMIZER = re.compile(r"optim|opt_state|train_state|^opt$|solver", re.IGNORECASE)
# Optimizers that keep nothing from step to step.
_PLAIN_SGD = re.compile(r"SGD\((?!.*momentum)")


class IncompleteCheckpoint(LocalRule):
    """
    ## What it does
    Finds a saved dictionary that holds the model and the step or epoch, and nothing of the optimizer, in a file that
    makes an optimizer with state and reads checkpoints.

    ## Why is this bad
    Adam's averages start from zero again, and the loss jumps.

    ## What happens with N processes
    The same on all ranks. On large clusters it happens at every restart.

    ## Known problems
    An optimizer that another module saves into its own file is not seen. The rule is off until it is selected: it uses
    names, and no such fault has been seen in real code yet.

    ## Use instead
    Save the optimizer's state, the schedule, the step and the state of the random generators beside the model.

    ## Fix safety
    There is no automatic fix: the reader must change with the writer.
    """

    code, name, severity, row = "AR407", "incomplete-checkpoint", "warning", "checkpoint save"
    default = False
    cluster = "After a restart the optimizer begins with an empty state: the loss jumps at every preemption."
    advice = "Save and load the optimizer's state (and schedule, step, random state) beside the model's."
    words = ("torch.save", ".save(")
    nodes = (ast.Dict,)
    bad = (
        Example(
            {
                "train.py": """\
import torch

def save(model, epoch, path):
    torch.save({"model": model.state_dict(), "epoch": epoch}, path)

def load(model, path):
    state = torch.load(path)
    model.load_state_dict(state["model"])
    return state["epoch"]

def main(model):
    optimizer = torch.optim.AdamW(model.parameters())
""",
            },
            at=(4,),
        ),
    )
    good = (
        Example(
            {
                "train.py": """\
import torch

def save(model, optimizer, epoch, path):
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": epoch}, path)
    torch.save({"model": model.state_dict()}, "weights.pt")

def load(model, optimizer, path):
    state = torch.load(path)
    model.load_state_dict(state["model"])

def main(model):
    optimizer = torch.optim.AdamW(model.parameters())
""",
            },
        ),
    )

    def visit(self, node: ast.AST, file: File) -> Iterator[Finding]:
        assert isinstance(node, ast.Dict)
        keys = [key.value for key in node.keys if isinstance(key, ast.Constant) and isinstance(key.value, str)]
        if file.is_test or None in node.keys or not any(map(_STEP.search, keys)) or not any(map(_MODEL.search, keys)):
            return
        if any(map(_OPTIMIZER.search, keys)) or "state_dict" not in ast.unparse(node):
            return
        name = _saved_as(node, file)
        if name is None or _OPTIMIZER.search(_more_keys(name, file)) or not _resumes(file):
            return
        yield self.local(
            file, node, f"a checkpoint to resume from holds {', '.join(keys)}, and nothing of the optimizer"
        )


def _saved_as(node: ast.Dict, file: File) -> str | None:
    """Return the name under which the dictionary is saved: "" if it is passed directly, None if it is not saved."""
    above = next(file.parents(node), None)
    if isinstance(above, ast.Call):
        return "" if _is_save(above) else None
    if not isinstance(above, ast.Assign) or not isinstance(above.targets[0], ast.Name):
        return None
    name = above.targets[0].id
    calls = (part for part in file.nodes if isinstance(part, ast.Call) and _is_save(part))
    return name if any(isinstance(arg, ast.Name) and arg.id == name for c in calls for arg in c.args) else None


def _is_save(call: ast.Call) -> bool:
    return isinstance(call.func, ast.Attribute) and call.func.attr == "save"


def _more_keys(name: str, file: File) -> str:
    """Return the keys that are put into ``name`` later, as one text."""
    keys = [
        part.slice.value
        for part in file.nodes
        if isinstance(part, ast.Subscript)
        and isinstance(part.value, ast.Name)
        and part.value.id == name
        and isinstance(part.slice, ast.Constant)
        and isinstance(part.slice.value, str)
    ]
    return " ".join(keys)


def _resumes(file: File) -> bool:
    """Whether this file reads checkpoints back, and trains with an optimizer that has a state."""
    text = file.text
    trains = re.search(r"optim\.|optimizer", text) and not re.search(r"optimizer\w*\.load_state_dict", text)
    return "load_state_dict" in text and bool(trains) and not _PLAIN_SGD.search(text)
