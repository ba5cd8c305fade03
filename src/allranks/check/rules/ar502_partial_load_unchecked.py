"""AR502: load_state_dict(strict=False), and nobody looks at what was not loaded."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import replace

from allranks.check.rule import LocalRule
from allranks.check.sources.source import File
from allranks.check.tree.syntax import distributed, function_of, given, is_constant, tail_of
from allranks.check.tree.words import mentions, parts, says
from allranks.findings import Edit, Finding, Fix, Place

# Weights that are a part by nature.
_PARTS = (
    *("lora", "adapter", "peft", "prompt", "head", "embed", "vae", "vision", "tower", "encoder", "backbone"),
    *("pretrain", "pretrained", "teacher", "ema", "lpips", "clip", "bert", "resnet", "controlnet", "unet"),
)


class PartialLoadUnchecked(LocalRule):
    """
    ## What it does
    Finds `model.load_state_dict(state, strict=False)` whose result is dropped.

    ## Why is this bad
    With a wrong prefix (`module.`, `model.`) nothing is loaded, without an error. The result lists the missing keys,
    and the program ignores it.

    ## What happens with N processes
    All ranks start with random weights and agree with each other. Only the first loss shows it.

    ## Known problems
    Weights that are partial on purpose (adapters, a new head) are loaded like this: they are recognised by their names.
    Confidence is low if what is loaded is not the checkpoint of a whole model, by its name, in a program that trains.

    ## Use instead
    `missing, unexpected = load_state_dict(...)`, and stop if either holds more than what you expect.

    ## Fix safety
    Unsafe: the program may rely on missing keys.
    """

    code, name, severity, row = "AR502", "partial-load-unchecked", "warning", "checkpoint load"
    cluster = "A wrong prefix loads nothing, without an error, on every rank."
    advice = "Check missing_keys and unexpected_keys of the result, and stop if there are any that you do not expect."
    words = ("strict",)
    nodes = (ast.Expr,)
    bad = (
        """\
import torch
from lightning.pytorch import Trainer


def finetune(model, data, path):
    checkpoint = torch.load(path, map_location="cpu")
    model.load_state_dict(checkpoint["state_dict"], strict=False)  # <-- found
    Trainer(devices=4, strategy="ddp").fit(model, data)
""",
    )
    good = (
        """\
import torch
from lightning.pytorch import Trainer


def finetune(model, data, path, adapter):
    checkpoint = torch.load(path, map_location="cpu")
    missing, unexpected = model.load_state_dict(checkpoint["state_dict"], strict=False)
    if unexpected or set(missing) - {"head.bias"}:
        raise RuntimeError(f"the checkpoint does not fit: {missing} {unexpected}")
    model.load_state_dict(adapter, strict=False)
    Trainer(devices=4, strategy="ddp").fit(model, data)
""",
    )

    def applies(self, file: File) -> bool:
        return not file.is_test

    def visit(self, node: ast.AST, file: File) -> Iterator[Finding]:
        call = node.value if isinstance(node, ast.Expr) else None
        if not isinstance(call, ast.Call) or tail_of(call) != "load_state_dict" or not call.args:
            return
        text = ast.unparse(call)
        if not is_constant(given(call, 1, "strict"), False) or not parts(text).isdisjoint(_PARTS):
            return
        at = file.place(call)
        before = Place(at.path, at.line, at.column, at.line, at.column)
        fix = Fix("take the result", (Edit(before, "loaded = "),), safe=False)
        found = self.local(
            file, node, "load_state_dict(strict=False), and nothing checks which keys were not loaded", fix=fix
        )
        trains = (distributed(file) or file.says("lightning")) and file.says("fit(", "backward(")
        trains = trains and not any(word in file.code_in(None).lower() for word in ("adapter", "lora", "peft"))
        function = function_of(node, file)
        whole = mentions(call.args[0], "checkpoint") and not (
            function is not None and says(function.name, "one_process")
        )
        yield found if trains and whole else replace(found, confidence="low")
