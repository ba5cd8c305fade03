"""The public programs that are rehearsed: where they come from, what is made for them, and how they are started."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from bench.projects import prepare


@dataclass(frozen=True, slots=True)
class Program:
    """One program of a public repository. It runs in ``folder`` of the repository.

    - ``command`` follows the ``options`` of `allranks rehearse`. ``{root}`` in it is the root of the repository.
    - ``make`` gets the root of the repository and makes small data in it.
    - ``paths``: the parts of the repository that are needed; without them all.
    - ``packages`` are needed beside torch, jax and the packages of this project's tests.
    - ``right``: findings (code, path, line) that were read and are right.
    """

    name: str
    repository: str
    commit: str
    command: str
    options: str = "-n 2"
    folder: str = "."
    packages: tuple[str, ...] = ()
    environ: Mapping[str, str] = field(default_factory=dict)
    make: Callable[[Path], None] | None = None
    paths: tuple[str, ...] = ()
    right: tuple[str, ...] = ()


EXAMPLES = ("pytorch/examples", "77f55b912142e11fcfdf5b530231fb9c52f181e8")
OFFLINE = {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "WANDB_MODE": "disabled"}

PROGRAMS = (
    Program(
        "nanogpt",
        "karpathy/nanoGPT",
        "3adf61e154c3fe3fca428ad6bc3818b27a3b8291",
        "train.py config/train_shakespeare_char.py --n_layer=2 --n_head=2 --n_embd=32 --block_size=64 --batch_size=4"
        " --max_iters=16 --eval_interval=5 --eval_iters=2 --gradient_accumulation_steps=4"
        " --always_save_checkpoint=True",
        options="-n 2 --resume-args=--init_from=resume",
        make=prepare.nanogpt,
        right=("AR401 train.py:286", "AR311 train.py:300"),
    ),
    Program(
        "ddp-series",
        *EXAMPLES,
        "multigpu_torchrun.py 4 1",
        folder="distributed/ddp-tutorial-series",
        paths=("distributed",),
    ),
    Program("fsdp2", *EXAMPLES, "example.py", folder="distributed/FSDP2", paths=("distributed",)),
    Program("ddp", *EXAMPLES, "example.py", folder="distributed/ddp", paths=("distributed",)),
    Program(
        "mingpt-ddp",
        *EXAMPLES,
        "main.py",
        folder="distributed/minGPT-ddp/mingpt",
        packages=("hydra-core", "omegaconf", "boto3"),
        paths=("distributed",),
    ),
    Program(
        "imagenet",
        *EXAMPLES,
        "main.py --dist-url env:// --dist-backend nccl -b 4 -j 1 --epochs 3 imagenet",
        options="-n 2 --resume-args='--resume checkpoint.pth.tar'",
        folder="imagenet",
        packages=("torchvision",),
        make=prepare.imagenet,
        paths=("imagenet",),
        right=("AR605 main.py:184", "AR101 main.py:430", "AR101 main.py:432"),
    ),
    Program(
        "nanochat",
        "karpathy/nanochat",
        "92d63d4e8bb4df75c3b71618f31ddde2378b2bcd",
        "-m scripts.base_train --depth=2 --aspect-ratio=16 --head-dim=16 --window-pattern=L --max-seq-len=64"
        " --device-batch-size=2 --total-batch-size=512 --eval-every=5 --eval-tokens=512 --core-metric-every=-1"
        " --sample-every=-1 --save-every=5 --num-iterations=16",
        packages=("rustbpe", "tiktoken", "pyarrow", "wandb"),
        environ={"NANOCHAT_BASE_DIR": "base"},
        make=prepare.nanochat,
    ),
    Program(
        "accelerate",
        "huggingface/accelerate",
        "16cb6eb80dd9aa8b4df1a63ef57863e455d53b83",
        "complete_nlp_example.py --mixed_precision bf16 --checkpointing_steps 4 --output_dir out",
        folder="examples",
        packages=("transformers", "datasets", "evaluate"),
        environ=OFFLINE,
        make=prepare.accelerate,
        paths=("examples",),
    ),
    Program(
        "lightning",
        "Lightning-AI/pytorch-lightning",
        "7f0c3436cd3f6ad3753125672024fc415cbcb414",
        "transformer.py",
        folder="examples/pytorch/basics",
        packages=("lightning",),
        make=prepare.lightning,
        paths=("examples",),
        right=("AR606 transformer.py:57",),
    ),
    Program(
        "trl",
        "huggingface/trl",
        "f2cd57710ae345ea6428ae95363267fcf38a3dc8",
        "trl/scripts/sft.py --model_name_or_path tiny-llama --dataset_name tiny-text --output_dir out --bf16 True"
        " --per_device_train_batch_size 2 --gradient_accumulation_steps 2 --max_steps 16 --save_steps 5"
        " --logging_steps 2 --max_length 32 --report_to none",
        packages=("trl",),
        environ=OFFLINE,
        make=prepare.trl,
    ),
    Program(
        "torchtitan",
        "pytorch/torchtitan",
        "73a0e6979dd10b6b1904098eb3c8f62c18ab87ce",
        "-m torchtitan.train --job.config_file torchtitan/models/llama3/train_configs/debug_model.toml"
        " --training.local_batch_size 2 --training.seq_len 128 --training.steps 16 --checkpoint.enable"
        " --checkpoint.interval 5",
        packages=("tyro", "datasets", "triton"),
        environ=OFFLINE,
        make=prepare.torchtitan,
        paths=("torchtitan", "tests/assets/tokenizer"),
    ),
    Program(
        "dit",
        "facebookresearch/DiT",
        "ed81ce2229091fd4ecc9a223645f95cf379d582b",
        "train.py --data-path images/train --model DiT-S/8 --num-classes 2 --epochs 2 --global-batch-size 4"
        " --num-workers 1 --log-every 4 --ckpt-every 5",
        packages=("torchvision", "timm", "diffusers"),
        environ=OFFLINE,
        make=prepare.dit,
        right=("AR605 train.py:149",),
    ),
    Program(
        "midgpt",
        "AllanYangZhou/midGPT",
        "482be37b02f6b2a9116d09c081e427e17a507d91",
        "launch.py --config=tiny --rundir={root}/out --multihost",
        options="-n 2 -d 4",
        packages=("equinox", "optax", "orbax-checkpoint", "gcsfs", "wandb"),
        environ=OFFLINE,
        make=prepare.midgpt,
    ),
    Program(
        "gemma",
        "google/flax",
        "18f8f311c275d57f46d95e41b15aa97b454754c0",
        "main.py --config=configs/rehearsed.py --workdir=out",
        folder="examples/gemma",
        packages=("flax", "clu", "ml-collections", "sentencepiece", "tensorflow-cpu", "tensorflow-datasets"),
        environ={"TFDS_DATA_DIR": "tfds"},
        make=prepare.gemma,
        paths=("examples/gemma",),
    ),
)
