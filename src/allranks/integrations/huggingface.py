"""A callback for Hugging Face's Trainer: ``Trainer(..., callbacks=[Ranks()])``."""

# ruff: noqa: ARG002  # hooks have the arguments that the Trainer gives them

from __future__ import annotations

import sys
from pathlib import Path
from types import FrameType
from typing import Any
from weakref import ref

import torch
from torch.distributed.fsdp import FullyShardedDataParallel
from transformers import Trainer, TrainerCallback, TrainerControl, TrainerState, TrainingArguments
from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR

from allranks.errors import AllranksError, name_ranks
from allranks.gate.log import log
from allranks.integrations import loop
from allranks.world.base import World
from allranks.world.notices import Notice
from allranks.world.progress import progress


class Ranks(TrainerCallback):  # type: ignore[misc]  # mypy does not follow transformers
    """Compare all ranks, report hangs, and save on preemption.

    When the training starts, the parameters, buffers and optimizers of all ranks are compared. A difference raises
    Mismatch on every rank, naming ranks and leaves. Load pretrained weights with ``allranks.load(path, into=model)`` on
    every rank, before the Trainer is made.

    ``verify_every``: also compare parameters and optimizers after each multiple of so many steps; 0: never.
    ``hang``: passed to ``allranks.init()``, which the callback calls unless the program has done so.
    ``save_on_preemption``: after a SIGTERM on any rank, all ranks save a checkpoint after the same step, and exit with
    code 143. ``trainer.train(resume_from_checkpoint=True)`` resumes from it.
    """

    def __init__(self, verify_every: int = 0, hang: bool = True, save_on_preemption: bool = True) -> None:
        self._hang, self._save_on_preemption = hang, save_on_preemption
        self._loop = loop.TrainingLoop(verify_every=verify_every, save_on_preemption=save_on_preemption)
        self._notice: Notice | None = None

    def on_init_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        self._world(args)

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        if self._save_on_preemption and args.enable_jit_checkpoint:
            raise AllranksError(
                "with enable_jit_checkpoint=True, each rank saves at a different step after SIGTERM.",
                remedy="Leave enable_jit_checkpoint out, or use Ranks(save_on_preemption=False).",
            )
        world = self._world(args)
        _warn_of_generators(args, state, world)
        model = kwargs["model"]
        held = {"model": model, "optimizer": kwargs["optimizer"]}
        if _is_sharded(model, args):
            log("allranks: under FSDP1 and DeepSpeed no weights are compared.", level=30)
            held = {}
        running = ref(_running_trainer())

        def save(step: int) -> str:
            trainer = running()
            assert trainer is not None
            trainer._save_checkpoint(trainer.model, trial=None)
            return f"{args.output_dir}/{PREFIX_CHECKPOINT_DIR}-{step}"

        self._loop.begin_training(world, held, state.global_step, save_state=save)

    def on_step_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        progress.doing("training step", step=state.global_step)

    def on_prediction_step(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        progress.doing("evaluation", stage="evaluation")

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> TrainerControl:
        model = kwargs["model"]

        def held() -> dict[str, Any]:
            if _is_sharded(model, args):
                return {}
            return {"parameters": dict(model.named_parameters()), "optimizer": kwargs["optimizer"]}

        self._notice = self._loop.after_step(state.global_step, held)
        if self._notice is not None:
            control.should_save = control.should_training_stop = True
        return control

    def on_save(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        self._loop.note_save(state.global_step, f"{args.output_dir}/{PREFIX_CHECKPOINT_DIR}-{state.global_step}")
        if self._notice is not None:
            self._loop.save_and_exit(self._notice)

    def on_train_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        self._loop.end_training()  # who is told to leave now has nothing more to save than the program itself does

    def _world(self, args: TrainingArguments) -> World:
        return loop.join_world(args.process_index, args.world_size, reports_hangs=self._hang)


def _running_trainer() -> Trainer:
    """Return the Trainer that is running the current callback, found on the call stack."""
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        if isinstance(found := frame.f_locals.get("self"), Trainer):
            return found
        frame = frame.f_back
    raise AllranksError(
        "the callback Ranks was not called by a Trainer of transformers.",
        remedy="Pass the callback to a Trainer: Trainer(..., callbacks=[Ranks()]).",
    )


def _warn_of_generators(args: TrainingArguments, state: TrainerState, world: World) -> None:
    """Warn if a training is resumed with another number of ranks than the one that saved its random generators."""
    where = Path(args.output_dir, f"{PREFIX_CHECKPOINT_DIR}-{state.global_step}")
    ranks = len(list(where.glob("rng_state_*.pth"))) or int((where / "rng_state.pth").exists())
    if state.global_step and ranks and ranks != world.size and world.is_main:
        log(
            "allranks: %s is of %d rank%s: with %d, random generators of %s begin anew from the seed. Seed those that "
            "must not repeat themselves (dropout, augmentation) by step and rank.",
            *(where, ranks, "s" * (ranks > 1), world.size, _differing_ranks(ranks, world.size)),
            level=30,
        )


def _differing_ranks(saved: int, size: int) -> str:
    if 1 in (saved, size):
        return "all ranks"  # a single process has a file of another name
    return name_ranks(range(saved, size)) if size > saved else "no rank"


def _is_sharded(model: torch.nn.Module, args: TrainingArguments) -> bool:
    """Return whether FSDP1 or DeepSpeed shards the parameters, so that each rank holds only a part of them."""
    return bool(args.deepspeed) or any(isinstance(one, FullyShardedDataParallel) for one in model.modules())
