"""``allranks rehearse --suggest``: the options of a script are read, and small values proposed; nothing is run."""

from __future__ import annotations

from pathlib import Path

import pytest

from allranks.cli import rehearse
from allranks.rehearse.options import options_in
from allranks.rehearse.suggest import suggest


def proposed(text: str, configs: dict | None = None) -> str:
    return " ".join(suggest({"train.py": options_in(text)}, ranks=2, configs=configs or {}).arguments)


ARGPARSE = """\
p.add_argument("--data-path", required=True)
p.add_argument("--arch", "-a", default="resnet50", choices=["resnet18", "resnet50"])
p.add_argument("-b", "--batch-size", type=int, default=256)
p.add_argument("--epochs", default=90, type=int)
p.add_argument("--lr", default=0.1, type=float)
p.add_argument("--max-steps", type=int)
p.add_argument("--n-layer", default=2, type=int)
p.add_argument("--hidden_dim", default=4 * 768, type=int)
p.add_argument("--wandb", action=argparse.BooleanOptionalAction, default=True)
p.add_argument("--resume", action="store_true")
p.add_argument("--device", default="cuda")
p.add_argument("--world-size", default=8, type=int)
"""


CLICK = """\
import click
@click.option("--epochs", default=10)
@click.option("--compile/--no-compile", default=True)
def main(epochs, compile): ...
"""
HF = """\
from transformers import HfArgumentParser
@dataclass
class A:
    per_device_train_batch_size: int = 32
    max_seq_length: int = field(default=1024)
"""
NANOGPT = """\
batch_size = 12
block_size = 1024
n_layer = 12
wandb_log = True
max_iters = 600000
learning_rate = 6e-4
exec(open("configurator.py").read())
"""
# By source: the arguments that are proposed, one on each line.
PROPOSED = {
    ARGPARSE: """--arch resnet18 --batch-size 4 --epochs 2 --max-steps 20 --hidden_dim 64
        --no-wandb --world-size 2""",
    CLICK: "--epochs 2 --no-compile",
    "import typer\ndef main(num_steps: int = 5000, lr: float = 1e-3): ...\ntyper.run(main)": "--num-steps 20",
    HF: "--per_device_train_batch_size 4 --max_seq_length 64",
    "import tyro\n@dataclasses.dataclass\nclass A:\n    num_layers: int = 12\n": "--num-layers 2",
    NANOGPT: "--batch_size=4 --block_size=64 --n_layer=2 --wandb_log=False --max_iters=20",
    "LightningCLI(Model)": """fit --trainer.max_steps=20 --trainer.limit_val_batches=2 --trainer.devices=2""",
    "print('nothing')": "",
    "p.add_argument('--batch-size', default=SIZE, choices=SIZES)\np.add_argument(*NAMES, **OPTIONS)": "--batch-size 4",
    "def broken(": "",
}


@pytest.mark.parametrize("text", PROPOSED)
def test_small_values_are_proposed_by_the_names_of_options(text: str) -> None:
    assert proposed(text).split() == PROPOSED[text].split()


def test_hydra_gets_overrides_of_its_configuration() -> None:
    text = "import hydra\n@hydra.main(config_path='conf', config_name='base')\ndef main(cfg): ..."
    assert options_in(text).files == ("conf/base",)
    values = {"model": {"depth": 24, "dropout": 0.1}, "train": {"batch_size": 512, "epochs": 1}}
    assert proposed(text, {"conf/base.yaml": values}) == "model.depth=2 train.batch_size=4"


def test_what_is_required_and_unknown_is_named() -> None:
    found = suggest({"train.py": options_in(ARGPARSE)}, ranks=2, configs={"c.yaml": {"model": {"n_layers": 48}}})
    assert found.open == ("--data-path (train.py:1)",)
    assert not {one.split(" ")[0] for one in found.kept} & {*found.arguments, "--data-path"}
    assert found.kept
    assert found.notes == ("c.yaml: make a copy with model.n_layers: 2",)
    assert found.reasons[1] == ("--batch-size 4", "256", "train.py:3")


def test_the_command_reads_the_files_that_the_script_imports(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("train.py").write_text("import options\nraise SystemExit('it was run')\n")
    Path("options.py").write_text('p.add_argument("--epochs", default=90)\n')
    assert rehearse.main(["--suggest", "train.py"]) == 0
    out = capsys.readouterr().out
    assert "  allranks rehearse -n 2 train.py --epochs 2\n" in out
    assert out.splitlines()[-1].split() == ["--epochs", "2", "90", "options.py:1"]
    assert rehearse.main(["--suggest", "-m", "nowhere"]) == 2
