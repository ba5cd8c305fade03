"""Say what to do about a program that fails by itself, i.e. for a reason that has nothing to do with its other ranks.

The causes are a table of what programs print. The first entry that matches is taken, so special causes come first.
"""

from __future__ import annotations

import re
import textwrap
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Cause:
    """A common cause. ``title`` says what is missing, ``advice`` what to do; ``pattern`` is in the output."""

    name: str
    pattern: str
    title: str
    advice: str


CAUSES = (
    Cause(
        "arguments",
        r"^usage: |error: (the following arguments are required|unrecognized arguments|argument )|"
        r"error: invalid choice|Error: (Missing option|Missing argument|No such option)",
        "the script refuses its arguments",
        "Write the script's own arguments after its name; options of allranks come before it. "
        "`allranks rehearse --suggest SCRIPT` lists what the script takes.",
    ),
    Cause(
        "hydra",
        r"hydra\.errors\.|omegaconf\.errors\.|Could not override|Primary config .* not found|MissingMandatoryValue",
        "hydra cannot make the configuration",
        "Write overrides after the script: train.py model=tiny trainer.max_steps=20. "
        "Paths of configurations are relative to the script.",
    ),
    Cause(
        "gated",
        r"GatedRepo|gated repo|401 Client Error|403 Client Error|RepositoryNotFoundError|Access to model",
        "a hub refuses the model or the data set",
        "Log in and download it before, or use a tiny model with random weights: AutoModel.from_config(config).",
    ),
    Cause(
        "tracker",
        r"api_key not configured|wandb(\.errors\.| login|: ERROR)|UsageError: No API key|neptune.*api_token|"
        r"COMET_API_KEY",
        "an experiment tracker has no key, or no network",
        "Rehearse without a connection: WANDB_MODE=offline, MLFLOW_TRACKING_URI=file:./mlruns, or without the tracker.",
    ),
    Cause(
        "network",
        r"LocalEntryNotFoundError|OfflineModeIsEnabled|We couldn.t connect to|MaxRetryError|NameResolutionError|"
        r"Name or service not known|Temporary failure in name resolution|URLError|ConnectTimeout|ConnectionError:|"
        r"NewConnectionError|EndpointConnectionError|ProxyError|SSLError",
        "the program downloads something, and there is no network",
        "Download it once before the rehearsal and set HF_HUB_OFFLINE=1, or use what needs no download: random "
        "weights, made-up data. Each run of a rehearsal downloads again.",
    ),
    Cause(
        "memory",
        r"MemoryError|can't allocate memory|not enough memory|Cannot allocate memory|out of memory|OutOfMemory|"
        r"RESOURCE_EXHAUSTED|killed by SIGKILL|Killed\b|bad_alloc",
        "the memory of this machine is used up: all ranks are on it",
        "Make the model, the batch and the data set smaller (a few layers, a few hundred channels), or take fewer "
        "ranks: -n 2.",
    ),
    Cause(
        "kernels",
        r"No module named ['\"](flash_attn|triton|apex|xformers|deepspeed|transformer_engine|bitsandbytes|vllm|cupy)\b",
        "a package is imported that needs a GPU",
        "Choose the plain implementation of the model (attn_implementation='eager' or 'sdpa', no fused optimizer).",
    ),
    Cause(
        "module",
        r"ModuleNotFoundError: No module named|ImportError: cannot import name|ImportError: .*(requires|not installed)",
        "a package is missing in this environment",
        "Install it for the Python that runs allranks, or install allranks where the program runs. "
        "A module of the project needs its folder: start from there, or set PYTHONPATH.",
    ),
    Cause(
        "lightning",
        r"self\.parallel_devices\[self\.local_rank\]",
        "Lightning's Trainer has fewer devices than there are ranks: on a CPU, devices='auto' is one",
        "Take --accelerator cpu, or give the Trainer the number of ranks: Trainer(accelerator='cpu', devices=2).",
    ),
    Cause(
        "unused",
        r"Expected to have finished reduction in the prior iteration",
        "some parameters of the wrapped model got no gradient in a step",
        "Freeze parameters before the model is wrapped, use all outputs in the loss, or take "
        "DistributedDataParallel(..., find_unused_parameters=True).",
    ),
    Cause(
        "devices",
        r"invalid device ordinal|You requested gpu|MisconfigurationException.*(GPU|devices|num_nodes)|"
        r"num_gpus|more GPUs than|nproc_per_node|Requested .* GPUs",
        "the program asks for more GPUs than there are ranks",
        "Each rank sees as many GPUs as there are ranks on its host. Rehearse with as many ranks as GPUs are asked for "
        "(-n N), or ask for fewer: devices=N, --num_gpus N.",
    ),
    Cause(
        "cuda",
        r"Torch not compiled with CUDA|No CUDA GPUs are available|Found no NVIDIA driver|CUDA driver|CUDA error|"
        r"without NCCL|NCCL built in|ProcessGroupNCCL|Attempting to deserialize object on a CUDA device|"
        r"No supported gpu backend|CUDAAccelerator|libcuda",
        "the program asks for a GPU, and there is none",
        "Rehearse it with --accelerator cpu, the default without a GPU: then CUDA is mapped to the CPU.",
    ),
    Cause(
        "world",
        r"MissingRanks|(world_size|WORLD_SIZE|world size|num_processes|mesh|dp_size|tp_size|device_count).*"
        r"(must|divisible|does not match|!=|expected|should)|(must|divisible|not match|expected).*"
        r"(world_size|WORLD_SIZE|world size|mesh|dp_size|tp_size)",
        "the program expects another number of ranks",
        "Take that number (-n N; for JAX also -d M devices a rank), or change the program's mesh.",
    ),
    Cause(
        "disk",
        r"No space left on device|Disk quota exceeded|ENOSPC",
        "the disk is full",
        "Let the program write smaller files, or to another disk.",
    ),
    Cause(
        "port",
        r"EADDRINUSE|Address already in use",
        "the program opens a fixed port, and something else has it",
        "Read MASTER_PORT from the environment, which is set for each run.",
    ),
    Cause(
        "stdin",
        r"EOFError: EOF when reading a line|BdbQuit",
        "the program asks a person for something",
        "Ranks have no standard input: remove input() and breakpoint().",
    ),
    Cause(
        "permission",
        r"PermissionError|Permission denied|EACCES|Read-only file system",
        "the program may not write, or read, a path of this machine",
        "Give it a folder that it may write; paths of the cluster are often an argument.",
    ),
    Cause(
        "data",
        r"FileNotFoundError|No such file or directory|Dataset not found|DatasetNotFound|NotADirectoryError|"
        r"num_samples should be a positive integer value, but got num_samples=0|EmptyDatasetError|"
        r"Couldn't find any data",
        "a file or a data set is not on this machine",
        "Give the program a small one: a few files of the same form, made by a script. Its path is often an argument.",
    ),
)
_NEEDS = (
    "a rehearsal needs a run that ends without an error on this machine: a tiny model, a few steps, data that is here"
)


def cause_of(text: str) -> Cause | None:
    """Return the common cause that a program's last lines show, or None."""
    return next((one for one in CAUSES if re.search(one.pattern, text, re.MULTILINE)), None)


def explained(headline: str, tail: list[str], script: str) -> list[str]:
    """Return the lines that explain why a program failed by itself.

    ``headline`` says which rank failed, and how; ``tail`` are this rank's last lines. ``script`` is its path, or "".
    """
    cause = cause_of("\n".join([*tail, headline]))
    lines = [f"the program fails by itself: {headline}", *(f"  | {line}" for line in tail)]
    if cause is not None:
        advice = cause.advice.replace("SCRIPT", script or "SCRIPT")
        lines += [f"  why: {cause.title}", *_wrapped(f"  to do: {advice}")]
    lines.append(f"  {_NEEDS}")
    if script and "--suggest" not in "".join(lines):
        lines.append(f"  next: allranks rehearse --suggest {script} proposes arguments for it")
    return lines


def _wrapped(text: str) -> list[str]:
    return textwrap.wrap(text, 116, subsequent_indent=" " * 9)
