"""Which functions one process runs by itself, as far as names tell. Pure."""

from __future__ import annotations

import re

_FORMATS = (
    r"(hf|huggingface|transformers|onnx|torch|pytorch|pt|pth|jax|flax|tf|keras|safetensors|gguf|diffusers|dcp|fsdp|zero|megatron"
    r"|mcore|mg|nemo|lightning|orbax|t5x|paxml|maxtext|neox|sfpt|fp32|bin|ckpt|checkpoint|llama\d?|lit|fms"
    r"|tfrecords?|webdataset|wds|lmdb|parquet|arrow|hdf5|mds)"
)
# Programs and functions that make one thing of another.
_TOOL = re.compile(
    r"(?i)(^|[/_.])(convert\w*|conversions?|exports?|exporter|exporting|export_\w+|deploy\w*|merge_\w+|(\w+_)?merger|consolidate\w*|verify_\w+"
    rf"|quantize\w*|transform_(params?|ckpt|checkpoint|weights?)|{_FORMATS}2{_FORMATS}|(\w+_)?(to|2)_{_FORMATS})($|[/_.])"
)
_USES = re.compile(r"(?i)(^|[/_])(inference|infer|predict|demo|sample|generate|visuali[sz]e)($|[/_.])")
# Words of a program that looks at what a trained model does, or brings data and models from here to there, and of one
# that several processes run all the same.
_LOOKS = re.compile(
    r"(?i)eval|infer|predict|sampl|generat|demo|visual|viz|plot|retriev|search|stat(s|istics)|embed|translat|decod"
    r"|preproc|prepar|process_|extract|caption|annotat|creat|build|cache|index|download|upload|push|benchmark|debug|render|animat"
)
_TRAINS = re.compile(
    r"(?i)train|tun(e|ing)|fit|solve|main|engine|(^|_)run$|runner|dist|ddp|fsdp|multi|parallel|horovod|sft|dpo|ppo"
)
_OUTDATED = re.compile(r"^_*(old|legacy|deprecated)_|_(legacy|deprecated)$")
_UNCALLED = frozenset({"test", "inference", "infer", "predict", "demo", "visualize", "plot", "push_to_hub"})


def is_tool(reference: str) -> bool:
    """Whether an entry, by its name or that of its file, turns one thing into another."""
    path, _, name = reference.partition("::")
    return bool(_TOOL.search(path.removesuffix(".py")) or _TOOL.search(name))


def is_by_hand(reference: str, caller: str) -> bool:
    """Whether a function is the program of a file that turns one thing into another, or shows what its module can do to
    whoever runs that."""
    path, _, name = reference.partition("::")
    shows = name.strip("_") == "demo" and caller == f"{path}::"
    return shows or (name == "main" and is_tool(f"{path}::"))


def uses_model(path: str) -> bool:
    """Whether a file, by its name, uses a model that another has trained."""
    return _USES.search(path.rpartition("/")[2]) is not None


def only_looks(path: str) -> bool:
    """Whether a file, by its name, looks at what a model does, or prepares what others use, and does not train one."""
    name = path.rpartition("/")[2].removesuffix(".py")
    return _LOOKS.search(name) is not None and _TRAINS.search(name) is None


def is_apart(reference: str) -> bool:
    """Whether a function that nobody here calls is mostly called in one process, though its class is made for more: it
    uses a model, or is what another of its name has been before."""
    name = reference.rpartition("::")[2].rpartition(".")[2]
    return name in _UNCALLED or _OUTDATED.search(name) is not None
