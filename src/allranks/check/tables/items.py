"""Names of samples: each process has its share of the data, so that what is called after a sample is its own. Pure."""

from __future__ import annotations

import re

_NAMES = r"(file_?)?names?|ids?|uids?|uuids?|paths?|keys?|files?|fnames?|stems?|utts?|datetimes?|timestamps?|dates?"
_OF = r"(\w+_|img|image|video|audio|wav|utt|sample|file)?"
_COUNTER = re.compile(r"(?i)^(i|j|k|n|it|num\w*|count\w*)$|idx|index|step|iter|epoch")
_INDEX = re.compile(r"(?i)^(sample|image|img|data|item|example|dataset|video|utt|doc)_?(idx|index|idxs|indices)$")
_STEPS = re.compile(r"(?i)(^|_)(steps?|iters?|iterations?|epochs?)$")
_KEY = re.compile(rf"(?i)^{_OF}({_NAMES}|idx|index|indices)$")
_DATA = re.compile(r"(?i)(loader|dataset|_dl|data_?iter|iterator|batch|samples|predictions)\b")
_OF_THE_PROCESS = re.compile(
    r"\b(iter\w*_)?local_(\w+_)?(shards|parameters|params|weights|tensors|modules|experts)\(\)"
)
_SETTINGS = re.compile(r"(?i)\b(cfg|conf|config|args|opts?|options|params|hparams|settings)\b")
# What a process calls the number of the copy of a model that it belongs to: a file that bears it, is that copy's.
COPIES = frozenset(["replica_id", "replica_rank", "replica_idx", "replica_index", "_replica_id", "_replica_rank"])
_BATCHES = frozenset(
    ["batch", "data", "sample", "item", "example", "inputs", "record", "datum", "meta", "img_meta", "prediction"]
)


def yields_samples(source: str) -> bool:
    """Whether a loop goes over data, as far as its source says, or over what lies on this process: not over settings or
    named things."""
    if _OF_THE_PROCESS.search(source):
        return True
    return ".items(" not in source and bool(_DATA.search(source)) and not _SETTINGS.search(source)


def may_hold_samples(source: str) -> bool:
    """Whether what a loop goes over may be samples."""
    return not _SETTINGS.search(source)


def counts(variable: str, source: str = "") -> bool:
    """Whether a variable of a loop counts: it is alike on all ranks, whatever data they have. What comes with a sample
    out of a loader, and is called its index, does not."""
    told = source and "enumerate(" not in source and _INDEX.search(variable)
    return bool(_COUNTER.search(variable)) and not told


def is_step(name: str) -> bool:
    """Whether a name is that of how far the training has come: all ranks come there together, whoever keeps count."""
    return bool(_STEPS.search(name))


def key_of_name(key: object) -> bool:
    """Whether a sample keeps under this key what it is called."""
    return isinstance(key, str) and bool(_KEY.search(key))


def is_batch(parameter: str) -> bool:
    """Whether a parameter of this name is given samples."""
    return parameter in _BATCHES
