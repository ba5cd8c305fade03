"""Commands with other launchers, which the rehearsal replaces, and scripts that start their own ranks."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from allranks.cli.rehearse_start import must_not_start_ranks, started
from allranks.launch.job import Module, Script
from allranks.rehearse.launchers import advice_for_spawn, spawns_in, start_of
from allranks.settings import ConfigWrong


@pytest.mark.parametrize(
    ("command", "words", "ranks"),
    [
        ("train.py --x 1", "train.py --x 1", None),
        ("torchrun --standalone --nproc_per_node 4 train.py --x", "train.py --x", 4),
        ("torchrun --nproc-per-node=2 --nnodes=1 -m package.train --x", "-m package.train --x", 2),
        ("torchrun --nproc-per-node gpu train.py", "train.py", None),
        ("python -m torch.distributed.run --rdzv_id 3 --nproc_per_node 2 -- train.py", "train.py", 2),
        ("python3 -m torch.distributed.launch --nproc_per_node=2 train.py", "train.py", 2),
        ("uv run torchrun --nproc_per_node=2 train.py", "train.py", 2),
        ("accelerate launch --multi_gpu --num_processes 2 train.py --lr 1", "train.py --lr 1", 2),
        ("accelerate launch --tpu-use-sudo --downcast_bf16 --num-processes 2 train.py", "train.py", 2),
        ("accelerate launch --main_training_function f -m package.train", "-m package.train", None),
        ("accelerate-launch --num_processes=2 train.py", "train.py", 2),
        ("/opt/env/bin/accelerate launch -m package.train", "-m package.train", None),
        ("accelerate config", "accelerate config", None),
        ("python -m package.train", "python -m package.train", None),
    ],
)
def test_a_launcher_is_left_out(command: str, words: str, ranks: int | None) -> None:
    start = start_of(command.split())
    assert (" ".join(start.program), start.ranks, start.refusal) == (words, ranks, "")


@pytest.mark.parametrize(
    ("command", "says"),
    [
        ("srun -n 4 python train.py", "srun starts ranks of its own. Leave srun out"),
        ("deepspeed train.py", "Leave deepspeed out"),
        ("accelerate launch --use-fsdp train.py", "accelerate --use-fsdp prepares FSDP"),
        ("accelerate launch --use_deepspeed train.py", "prepares DeepSpeed"),
        ("torchrun --no-python ./train.sh", "a command that is no Python"),
        ("torchrun --nproc_per_node 2", "there is no script in this command"),
    ],
)
def test_a_launcher_that_cannot_be_replaced_is_refused(command: str, says: str) -> None:
    assert says in start_of(command.split()).refusal


def test_the_configuration_of_accelerate_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "environ", {})
    file = tmp_path / "a.yaml"
    file.write_text("distributed_type: MULTI_GPU\nfsdp_config: {}\nmixed_precision: 'bf16'\nnum_processes: 2\n")
    start = started(f"accelerate launch --cpu --config_file {file} train.py".split())
    assert (start.program, start.ranks) == (("train.py",), 2)
    assert start.variables == {"ACCELERATE_MIXED_PRECISION": "bf16", "ACCELERATE_USE_CPU": "true"}
    assert os.environ == start.variables
    file.write_text("distributed_type: FSDP\n")
    with pytest.raises(ConfigWrong, match="accelerate launch prepares FSDP"):
        started(f"accelerate launch --config_file {file} train.py".split())
    with pytest.raises(ConfigWrong, match=r"none\.yaml cannot be read"):
        started(["accelerate", "launch", "--config_file", "none.yaml", "train.py"])


@pytest.mark.parametrize(
    ("text", "functions"),
    [
        ("import torch.multiprocessing as mp\nmp.spawn(worker, nprocs=2)", ["worker"]),
        ("import torch\ntorch.multiprocessing.spawn(fn=main, nprocs=2)", ["main"]),
        ("from torch.multiprocessing import spawn\nspawn(lambda rank: 0)", ["lambda rank: 0"]),
        ("from accelerate import notebook_launcher\nnotebook_launcher(train, num_processes=2)", ["train"]),
        ("import os, torch.multiprocessing as mp\nif 'RANK' not in os.environ:\n    mp.spawn(worker)", []),
        ("import os, torch.multiprocessing as mp\nrank = os.environ.get('LOCAL_RANK')\nmp.spawn(worker)", []),
        ("import os, torch.multiprocessing as mp\nos.environ['RANK'] = '0'\nmp.spawn(worker)", ["worker"]),
        ("import random\nenemy.spawn(3)", []),
        ("dist.init_process_group(rank=rank)\nmp.Process(target=run, args=(0, 2)).start()", ["run"]),
        ("mp.Process(target=log).start()", []),
        ("pl.Trainer(devices=2, strategy='ddp_spawn')", [""]),
        ("pl.Trainer(devices=2, strategy='ddp')", []),
        ("spawn(", []),
    ],
)
def test_scripts_that_start_their_ranks_are_recognised(text: str, functions: list[str]) -> None:
    """A script that reads RANK knows that another launcher may have started it."""
    assert [one.function for one in spawns_in(text)] == functions


def test_a_trainer_that_starts_its_ranks_gets_its_own_advice() -> None:
    (spawn,) = spawns_in("Trainer(strategy='ddp_fork')")
    assert advice_for_spawn("train.py", spawn).endswith("Take strategy='ddp', which uses the ranks that are there.")


def test_a_script_that_starts_its_ranks_is_refused_with_more_than_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("train.py").write_text("import torch.multiprocessing as mp\nmp.spawn(worker, nprocs=2)\n")
    for target in (Script("train.py"), Module("train")):
        must_not_start_ranks(target, 1)
        assert (
            "train.py:2: the script starts its own ranks (mp.spawn): only their file calls" in capsys.readouterr().err
        )
        with pytest.raises(ConfigWrong, match=r"^train.py:2: the script starts its own ranks \(mp.spawn\)"):
            must_not_start_ranks(target, 2)


def test_the_options_without_a_value_are_those_of_the_launchers() -> None:
    run = pytest.importorskip("torch.distributed.run")
    launch = pytest.importorskip("accelerate.commands.launch")
    for name, parser in (("torchrun", run.get_args_parser()), ("accelerate", launch.launch_command_parser())):
        for action in parser._actions:
            if action.nargs == 0 and "--help" not in action.option_strings:
                option = action.option_strings[-1]
                start = start_of([name, *(["launch"] if name == "accelerate" else []), option, "train.py"])
                assert start.refusal or start.program[-1:] == ("train.py",), option
