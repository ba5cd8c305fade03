"""What a function does that nobody knows, of a package that nobody knows, if it does what its name says."""

from __future__ import annotations

import re
from collections.abc import Mapping

from allranks.check.tables.effects import Effect, Kind

_THING = (
    r"(json|jsonl|yaml|yml|toml|csv|tsv|txt|text|html|pickle|pkl|npy|npz|numpy|h5|hdf5|file|files|config|metadata|meta"
    r"|image|images|img|imgs|image_grid|grid|figure|fig|plot|plots|video|videos|gif|audio|wav|mesh|obj|ply|nifti|table"
    r"|results?|predictions|metrics|args|hparams)"
)
_SPOKEN: tuple[tuple[re.Pattern[str], Kind], ...] = (
    (
        re.compile(r"_?((maybe|auto|try|safe|attempt)_)?download(_(?!url$|dir$|path$|config|mode)\w+)?"),
        "download",
    ),
    (re.compile(r"(\w+_)?cached_download|\w+_download"), "download"),
    (re.compile(rf"(save|write|dump|export)_(as_|to_)?{_THING}"), "file"),
    (re.compile(r"(save|dump)_(model|ckpt|weights|state|snapshot)"), "checkpoint"),
    (re.compile(r"(cloud)?(pickle|dill|joblib|torch)_(dump|save)"), "checkpoint"),
    (re.compile(r"(json|jsonl|yaml|toml|csv)_(dump|save|write)"), "file"),
    (
        re.compile(r"(delete|remove|rm|clear|clean)_(dir|directory|folder|tree|files?|path|blobs?|objects?)"),
        "delete",
    ),
    (re.compile(r"upload_(file|files|folder|dir|directory|blob|object|artifacts?|to_\w+)"), "publish"),
    (re.compile(r"(rm|remove)_?tree"), "delete"),
    (re.compile(r"(Summary|EventFile|Event|TensorboardX?|TensorBoard)Writer"), "tracker"),
    (re.compile(r"(Wandb|WandB|MLFlow|MLflow|Mlflow|Comet|Neptune|Visdom|ClearML)(Logger|Writer|Tracker)"), "tracker"),
)
# Their functions let one process act, or lock: what the tables do not have of them is meant to be called by all.
_CAREFUL = frozenset(
    [
        *("transformers", "diffusers", "datasets", "accelerate", "lightning", "huggingface_hub", "tensorflow_datasets"),
        *(
            "streaming",
            "composer",
            "mmengine",
            "mmcv",
            "detectron2",
            "fvcore",
            "iopath",
            "deepspeed",
            "megatron",
            "nemo",
        ),
        *("fairseq", "fairseq2", "colossalai", "orbax", "flax", "jax", "kagglehub", "modelscope", "ignite", "torchtnt"),
        *("catalyst", "fastai", "speechbrain", "allranks", "pytest", "unittest", "kfp", "sagemaker", "azureml", "ray"),
    ]
)
_OTHERWISE = re.compile(r"(?i)hub|snapshot|master|rank|main|zero|chief|once|dist")
# What objects in a bucket are called: they are deleted for all.
_BLOBS = re.compile(r"(?i)(^|[._])(blob|bucket|s3_?(client|obj|object)?|gcs_?(client)?|obj_?store)$")


# What objects that stand for a file system are called, and what their methods do to the file that they are given.
_DISKS = re.compile(r"(?i)(^|[._])(file_?(client|backend|system|io|manager|handler)|path_?(manager|handler|mgr)|fs)$")
_ON_DISKS: Mapping[str, Kind] = {
    **dict.fromkeys(("remove", "rmtree", "rm_file", "delete", "unlink"), "delete"),
    **dict.fromkeys(("write_text", "write_bytes", "copyfile_from_local"), "file"),
}
_SETTINGS = re.compile(r"(?i)(^|[._])(args|cfg|config|conf|opts?|options|hparams|hps|flags|settings)$")
# The ends of expressions: files of pictures, of models.
_IMAGE = re.compile(r"\.(png|jpe?g|gif|webp|bmp|tiff?)['\"]\)*$", re.IGNORECASE)
_MODEL = re.compile(r"\.(pth?|pth\.tar|ckpt|onnx|h5|keras|safetensors|bin|zip)['\"]\)*$")


def effect_of(dotted: str) -> Effect | None:
    """Return what a function of a package, by its name, does to what all processes see."""
    package, _, last = dotted.rpartition(".")
    if not package or package.partition(".")[0] in _CAREFUL or _OTHERWISE.search(last):
        return None
    kind = next((kind for name, kind in _SPOKEN if name.fullmatch(last)), None)
    return Effect(dotted, kind) if kind is not None else None


def data_set(dotted: str) -> Effect | None:
    """Return what a constructor of a package does that is told to download (``download=True``)."""
    package, _, last = dotted.rpartition(".")
    named = last[:1].isupper() and package.partition(".")[0] not in _CAREFUL | {"", "torch"}
    return Effect(dotted, "download", ("root", 0), only_if="download") if named else None


def told_by(receiver: str, method: str, first: str) -> Effect | None:
    """Return what a method of something unknown does, by what that, or the file it is given first, is called."""
    if not first:
        return None
    if method == "save" and _IMAGE.search(first):
        return Effect("PIL.Image.Image.save", "file", (0, "fp"))
    if method == "save" and _MODEL.search(first):
        return Effect("*.save", "checkpoint", (0,))
    kind: Kind | None = "file" if method == "dump" and is_settings(receiver) else None
    kind = kind or (_ON_DISKS.get(method) if _DISKS.search(receiver) else None)
    return Effect(f"*.{method}", kind, (1 if method == "copyfile_from_local" else 0,)) if kind is not None else None


def is_settings(receiver: str) -> bool:
    """Whether an object, by its name, holds settings."""
    return bool(_SETTINGS.search(receiver))


def is_blob(receiver: str) -> bool:
    """Whether an object, by its name, is what lies in a bucket, or the bucket."""
    return bool(_BLOBS.search(receiver))
