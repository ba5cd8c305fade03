"""Where Lightning's trainer gives what was logged without a word to the others."""

from __future__ import annotations

from allranks.check.interpret.state import Frame
from allranks.check.interpret.values import Value
from allranks.check.summaries.project import Project

TRAINER = "lightning.pytorch.Trainer"
FABRIC = "lightning.fabric.Fabric"
CLI = "lightning.pytorch.LightningCLI"
# The flag of a trainer that a program has made: who holds it is outside of its loops. Hooks are given theirs.
MADE = frozenset({"made here"})
_LOOPS = frozenset({"fit", "validate", "test", "predict"})
# What was logged in a step is there as it was; what was logged over an epoch is reduced when that has ended.
_IN_STEPS = frozenset({"on_train_batch_start", "on_train_batch_end"})
# Hooks that run when all processes have reduced it: what is read there was kept.
BEHIND = frozenset({"on_validation_end", "on_test_end", "on_train_end", "on_fit_end", "teardown"})


def meets_nobody(project: Project, frame: Frame, trainer: Value) -> bool:
    """Whether no loop of the trainer is active here, or the modules of the project log nothing that is reduced."""
    over = not _LOOPS.isdisjoint(one for one in frame.result.meetings if isinstance(one, str))
    over = over or bool(trainer.flags & MADE) or frame.facts.name in _IN_STEPS | BEHIND
    return over or (bool(project.defined("training_step")) and not project.reduces_logs())
