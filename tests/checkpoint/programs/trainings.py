"""A rank of a training that is preempted, and goes on where it was: ``trainings.py FOLDER KIND [CONTEXT]``.

Writes ``ready-<rank>``, with its pid and the step that it began from, when three steps are done. Where BREAKS is set, a
data set raises instead, in the process of the rank, as if a process that it needs had died of the SIGTERM that comes.
"""

# ruff: noqa: ARG002  # hooks have the arguments that the Trainer gives them

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import DataLoader, TensorDataset

import allranks

ROWS = 200_000
NEVER = 10**6
FOLDER = Path(sys.argv[1])


def note(rank: int, step: int, start: int) -> None:
    """A step is done."""
    time.sleep(0.02)
    if step == start + 3:
        file = FOLDER / f"ready-{rank}"
        file.with_suffix(".tmp").write_text(f"{os.getpid()} {start}")
        file.with_suffix(".tmp").rename(file)


class Rows(TensorDataset):
    """Rows of ones; with BREAKS, SIGTERM comes with the first row after so many, and the row does not."""

    taken = 0

    def __getitem__(self, index: int) -> Any:
        self.taken += 1
        if self.taken > int(os.environ.get("BREAKS", NEVER)):
            os.kill(os.getpid(), signal.SIGTERM)
            raise BrokenPipeError("the process that reads the rows has gone")
        return super().__getitem__(index)


def rows() -> Any:
    return DataLoader(Rows(torch.ones(ROWS, 4)), num_workers=0 if "BREAKS" in os.environ else 2)


def plain(batches: Callable[[], Iterable[Any]], *, save_alone: bool = False) -> None:
    world = allranks.init("torch")
    state = {"weights": torch.zeros(8)}
    ckpt = allranks.Checkpointer(FOLDER / "run", world, every=NEVER)
    _, start = ckpt.restore(like=state) or (state, 0)
    for step, _ in enumerate(batches(), start + 1):
        one = torch.ones(8)
        torch.distributed.all_reduce(one)
        state["weights"] += one / world.size
        if not save_alone:
            ckpt.maybe_save(step, state)
        elif step % 7 == 0:
            ckpt.save(step, state)
        note(world.rank, step, start)


def loader(**how: Any) -> Callable[[], Iterable[Any]]:
    context = {"multiprocessing_context": sys.argv[3]} if sys.argv[3:] else {}
    return lambda: DataLoader(torch.arange(ROWS), **how, **context)


def double(sample: Any) -> Any:
    return {"x": sample["x"] * 2}


def ours() -> Iterable[Any]:
    data = allranks.Dataset.sequence([{"x": number} for number in range(20_000)], seed=0).map(double, workers=2)
    return data.batch(global_batch=2).loader(allranks.current())


def pool() -> Iterable[Any]:
    with torch.multiprocessing.Pool(2) as workers:
        yield from workers.imap(abs, range(ROWS))


def huggingface() -> None:
    from transformers import PretrainedConfig, PreTrainedModel, Trainer, TrainerCallback, TrainingArguments

    from allranks.integrations.huggingface import Ranks

    class Line(PreTrainedModel):  # type: ignore[misc]
        config_class = PretrainedConfig

        def __init__(self, config: Any) -> None:
            super().__init__(config)
            self.line = torch.nn.Linear(4, 1)
            self.post_init()

        def forward(self, x: Any, labels: Any) -> Any:
            found = self.line(x)
            return {"loss": (found - labels).pow(2).mean(), "logits": found}

    class Note(TrainerCallback):  # type: ignore[misc]
        start = 0

        def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            self.start = state.global_step

        def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            note(args.process_index, state.global_step, self.start)

    class Labelled(Rows):
        def __getitem__(self, index: int) -> Any:
            return {"x": super().__getitem__(index)[0], "labels": torch.ones(1)}

    data = Labelled(torch.ones(ROWS, 4))
    arguments = TrainingArguments(
        output_dir=str(FOLDER / "run"), max_steps=NEVER, save_strategy="no", dataloader_num_workers=rows().num_workers,
        per_device_train_batch_size=1, report_to=[], use_cpu=True, disable_tqdm=True, ignore_data_skip=True,
    )  # fmt: skip
    trainer = Trainer(Line(PretrainedConfig()), arguments, train_dataset=data, callbacks=[Note(), Ranks()])
    trainer.train(resume_from_checkpoint=any((FOLDER / "run").glob("checkpoint-*")))


def lightning() -> None:
    from lightning.pytorch import LightningModule, Trainer
    from lightning.pytorch.callbacks import Callback

    from allranks.integrations.lightning import CheckpointIO, Ranks

    class Net(LightningModule):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.line = torch.nn.Linear(4, 1)

        def training_step(self, batch: Any, _: int) -> Any:
            return self.line(batch[0]).pow(2).mean()

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), 1e-3)

        def train_dataloader(self) -> Any:
            return rows()

    class Note(Callback):  # type: ignore[misc]
        start = 0

        def on_train_start(self, trainer: Any, _: Any) -> None:
            self.start = trainer.global_step

        def on_train_batch_end(self, trainer: Any, *_: Any, **__: Any) -> None:
            note(trainer.global_rank, trainer.global_step, self.start)

    last = FOLDER / "run" / "last.ckpt"
    world = allranks.init("torch")
    Trainer(
        accelerator="cpu", devices=world.size, strategy="ddp", max_steps=NEVER, default_root_dir=FOLDER / "run",
        callbacks=[Note(), Ranks()], plugins=[CheckpointIO()], logger=False, enable_checkpointing=False,
        enable_progress_bar=False, enable_model_summary=False, use_distributed_sampler=False,
    ).fit(Net(), ckpt_path=last if last.exists() else None)  # fmt: skip


def accelerate() -> None:
    from accelerate import Accelerator

    from allranks.integrations.accelerate import Ranks

    allranks.init("torch")
    accelerator = Accelerator(cpu=True)
    ranks = Ranks(accelerator, FOLDER / "run")
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), 1e-3)
    model, optimizer, data = ranks.prepare(model, optimizer, rows())
    start = ranks.load_state() or 0
    for step, (batch,) in enumerate(data, start + 1):
        optimizer.zero_grad()
        accelerator.backward(model(batch).pow(2).mean())
        optimizer.step()
        ranks.after(step)
        note(accelerator.process_index, step, start)


KINDS: dict[str, Callable[[], None]] = {
    "no workers": lambda: plain(loader()),
    "rows": lambda: plain(rows),
    "save alone": lambda: plain(loader(), save_alone=True),
    "2 workers": lambda: plain(loader(num_workers=2)),
    "persistent workers": lambda: plain(loader(num_workers=2, persistent_workers=True)),
    "our map workers": lambda: plain(ours),
    "a pool": lambda: plain(pool),
    "HF Trainer": huggingface,
    "Lightning": lightning,
    "Accelerate": accelerate,
}

if __name__ == "__main__":
    KINDS[sys.argv[2]]()
    raise AssertionError("nobody left")
