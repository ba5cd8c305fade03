"""A trainer that is given one device starts no other process, also where its options are put together before."""

from __future__ import annotations

import pytest

from allranks.check.engine import Settings, check

MAIN = """\
import argparse
from many import fit
from single import tune

def main():
    args = argparse.ArgumentParser().parse_args()
    if args.command == "fit":
        fit(args)
    else:
        tune(args)

if __name__ == "__main__":
    main()
"""
MANY = """\
import lightning.pytorch as pl
import torch

def fit(args):
    pl.Trainer(devices=8, strategy="ddp").fit(args.model)
    if torch.distributed.get_rank() == 0:
        print("done")
"""
SINGLE = """\
import lightning.pytorch as pl

def tune(args):
    open("config.yaml", "w")
    options = {options}
    args.model.load_state_dict(args.state, assign=True)
    if args.epochs:
        options["{key}"] = args.epochs
    pl.Trainer(**options).fit(args.model)
"""


@pytest.mark.parametrize(
    ("options", "key", "expected"),
    [
        ("dict(devices=1, max_steps=args.steps)", "max_epochs", []),
        ('{"devices": 1, "max_steps": args.steps}', "max_epochs", []),
        ("dict(devices=1, max_steps=args.steps)", "devices", [4]),
        ("dict(devices=1, num_nodes=args.nodes)", "max_epochs", [4]),
        ("dict(max_steps=args.steps)", "max_epochs", [4]),
    ],
)
def test_one_device_among_the_options_of_a_trainer(options: str, key: str, expected: list[int]) -> None:
    files = {"main.py": MAIN, "many.py": MANY, "single.py": SINGLE.format(options=options, key=key)}
    raw = {name: text.encode() for name, text in files.items()}
    assert [f.place.line for f in check(raw, Settings(select=("AR102",))).findings] == expected


FABRIC = """\
import lightning as L
import torch

def main(nodes):
    fabric = L.Fabric(accelerator="auto", {options})
    fabric.launch()
    model = fabric.setup(torch.nn.Linear(2, 2))
    if fabric.is_global_zero:
        print(model)
    fabric.barrier()
    torch.save({{}}, "last.pt")

if __name__ == "__main__":
    main(2)
"""


@pytest.mark.parametrize(
    ("options", "expected"), [("devices=1", []), ("devices=2", [11]), ("devices=1, num_nodes=nodes", [11])]
)
def test_a_fabric_that_is_given_one_device_is_all_that_there_is(options: str, expected: list[int]) -> None:
    raw = {"train.py": FABRIC.format(options=options).encode()}
    assert [f.place.line for f in check(raw, Settings(select=("AR101",))).findings] == expected


HOOKS = """\
import torch
from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.cli import LightningCLI

class Net(LightningModule):
    def validation_epoch_end(self, outputs):
        torch.save(outputs, "last.pt")

if __name__ == "__main__":
    {starts}
"""
OTHER = "from lightning.pytorch import Trainer\nfrom train import Net\n\nTrainer(devices=8).fit(Net())\n"


@pytest.mark.parametrize(
    ("starts", "expected"),
    [
        ("Trainer(devices=1).fit(Net())", []),
        ("Trainer(devices=2).fit(Net())", [7]),
        ("Trainer(devices=1).test(Net()); Trainer().fit(Net())", [7]),
        ("LightningCLI(Net, trainer_defaults={'accelerator': 'cpu', 'max_epochs': 1})", []),
        ("LightningCLI(Net, trainer_defaults={'accelerator': 'gpu', 'max_epochs': 1})", [7]),
        ("LightningCLI(Net, trainer_defaults={'accelerator': 'cpu', 'devices': 4})", [7]),
    ],
)
def test_hooks_of_a_program_with_one_device_are_called_in_one_process(starts: str, expected: list[int]) -> None:
    """Of one that another imports, that may call them in several."""
    raw = {"train.py": HOOKS.format(starts=starts).encode()}
    assert [f.place.line for f in check(raw, Settings(select=("AR101",))).findings] == expected
    raw["many.py"] = OTHER.encode()
    assert [f.place.line for f in check(raw, Settings(select=("AR101",))).findings] == [7]
