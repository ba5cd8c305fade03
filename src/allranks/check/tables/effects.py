"""Calls that change what other processes see: files, directories, trackers, downloads."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

Kind: TypeAlias = Literal[
    "checkpoint",
    "file",
    "append",
    "delete",
    "mkdir",
    "folder",
    "tracker",
    "muted",
    "download",
    "fetched",
    "publish",
    "print",
    "command",
    "sample",
    "read",
    "load",
    "restore",
    "moved",
    "named",
    "free",
    "absent",
    "inside",
]
# What gives a file another name: where it then lies, it is as a whole.
MOVES = frozenset(["rename", "replace", "renames", "move"])


@dataclass(frozen=True, slots=True)
class Effect:
    """``pattern`` does ``kind`` to what the parameter ``path`` (position from 0, or keyword) names.

    ``muted`` starts a tracker that does nothing on some ranks; ``folder`` makes a directory that may be there already;
    ``read`` opens a file to read; ``command`` runs a program, and does what that does (`tables.commands`); ``load``
    reads a checkpoint; ``restore`` puts what was read into a model or an optimizer; ``moved``: a file is under this
    name from then on; ``named``: the folder of a run gets a name (`tables.runs`); ``free``: a name is looked
    for that nothing has yet; ``absent``: a tracker is used that only some ranks have; ``inside``: a wrapper
    is asked for what the model inside has; ``fetched``: a folder is filled
    by one process at a time.

    ``path`` may name several parameters, first match first; empty where the call has none. ``receiver``: the receiver
    itself is the path (``Path(...).write_text``). ``modes``: it is an effect only if the argument of ``open``-like
    calls (position 1, or keyword ``mode``) holds one of these letters. ``unless``: (keyword or position, constant)
    under which it does nothing, or does it once by itself (``exist_ok=True``); the constant `...` stands for any value.
    ``only_if``: a keyword without which, or with a constant that is false, it does nothing (``download=True``).
    """

    pattern: str
    kind: Kind
    path: tuple[int | str, ...] = ()
    receiver: bool = False
    modes: str = ""
    unless: tuple[tuple[int | str, object], ...] = ()
    only_if: str = ""

    def doing(self, kind: Kind) -> Effect:
        """Return what the call does with other arguments: one that opens a file may only read it."""
        return replace(self, kind=kind)


def each(words: str, kind: Kind, *path: int | str) -> Iterator[Effect]:
    for word in words.split():
        yield Effect(word, kind, path)


def of(owner: str, words: str, kind: Kind, *path: int | str) -> Iterator[Effect]:
    for word in words.split():
        yield Effect(f"{owner}.{word}", kind, path)


# A directory may be there already.
_THERE = (("exist_ok", True), (2, True))


def _changes() -> Iterator[Effect]:
    yield Effect("shutil.rmtree", "delete", (0, "path"))
    yield Effect("orbax.checkpoint.test_utils.erase_and_create_empty", "delete", (0, "directory"))
    yield from each("os.remove os.unlink os.rmdir os.removedirs", "delete", 0, "path")
    yield from each("os.rename os.replace os.renames shutil.move", "delete", 0, "src")
    yield from each("os.symlink os.link", "delete", 1, "dst")
    yield from of("tensorflow.io.gfile", "remove rmtree rename", "delete", 0, "path", "src")
    yield Effect("pathlib.Path.unlink", "delete", receiver=True, unless=(("missing_ok", True),))
    for word in ("rmdir", "rename", "replace", "symlink_to", "hardlink_to"):
        yield Effect(f"pathlib.Path.{word}", "delete", receiver=True)
    yield Effect("*.symlink_to", "delete", receiver=True)
    yield Effect("*.link_to", "delete", receiver=True)
    yield Effect("*.unlink", "delete", receiver=True, unless=(("missing_ok", True),))
    yield from of("*", "delete_blob delete_blobs delete_object delete_objects", "delete", 0, "Key", "Delete")
    yield Effect("*.rm", "delete", (0, "path"))  # of file systems: those of fsspec, the path managers of iopath
    yield Effect("os.mkdir", "mkdir", (0, "path"))
    yield Effect("os.makedirs", "mkdir", (0, "name"), unless=_THERE)
    yield Effect("pathlib.Path.mkdir", "mkdir", receiver=True, unless=_THERE)
    yield Effect("*.mkdir", "mkdir", receiver=True, unless=_THERE)
    yield Effect("elements.Path.mkdir", "folder", receiver=True)  # makes it wherever it is not there
    yield Effect("tensorflow.io.gfile.mkdir", "mkdir", (0, "path"))


def _trackers() -> Iterator[Effect]:
    yield Effect("wandb.init", "tracker", unless=(("mode", "disabled"),))
    yield from of("wandb", "log log_artifact log_model log_code save watch alert sweep finish", "tracker")
    yield Effect("torch.utils.tensorboard.SummaryWriter", "tracker", (0, "log_dir", "logdir"))
    yield from each("flax.metrics.tensorboard.SummaryWriter", "tracker", 0, "log_dir")
    yield from each("tensorflow.summary.create_file_writer", "tracker", 0, "logdir")
    yield from of("mlflow", "start_run set_experiment log_metric log_metrics log_param log_params", "tracker")
    yield from of("mlflow", "log_artifact log_artifacts log_figure log_dict log_text log_image log_table", "tracker")
    yield from of("mlflow", "set_tag set_tags pytorch.log_model", "tracker")
    yield from of("comet_ml", "Experiment ExistingExperiment OfflineExperiment start", "tracker")
    yield from each("neptune.init_run neptune.init neptune.new.init neptune.new.init_run neptune.Run", "tracker")
    yield from each("neptune.create_experiment clearml.Task.init trains.Task.init aim.Run dvclive.Live", "tracker")
    yield from of("sacred.observers", "FileStorageObserver MongoObserver", "tracker")
    for owner in ("keras.callbacks", "tensorflow.keras.callbacks"):
        yield Effect(f"{owner}.TensorBoard", "tracker", (0, "log_dir"))
    yield from each("swanlab.init swanlab.log trackio.init trackio.log", "tracker")
    # clu's writes event files wherever it is not told to log alone.
    for name in ("clu.metric_writers.create_default_writer", "clu.metric_writers.utils.create_default_writer"):
        yield Effect(name, "tracker", (0, "logdir"), unless=(("just_logging", True),))
    yield from of("clu.metric_writers", "SummaryWriter summary_writer.SummaryWriter", "tracker", 0, "logdir")
    yield from each("tensorflow.summary.FileWriter tensorboard_logger.configure", "tracker", 0, "logdir")
    for owner in ("ignite.contrib.engines.common", "ignite.contrib.handlers", "ignite.handlers"):
        yield from of(owner, "setup_tb_logging TensorboardLogger", "tracker", 0, "log_dir", "output_path")
        yield from of(owner, "setup_wandb_logging setup_mlflow_logging setup_visdom_logging", "tracker")
        yield from of(owner, "setup_clearml_logging setup_neptune_logging setup_polyaxon_logging", "tracker")
        yield from of(owner, "WandBLogger wandb_logger.WandBLogger MLflowLogger ClearMLLogger", "tracker")
        yield from of(owner, "NeptuneLogger VisdomLogger PolyaxonLogger", "tracker")
    yield from of("detectron2.utils.events", "TensorboardXWriter", "tracker", 0, "log_dir")
    yield from each("alchemy.Logger visdom.Visdom tensorboard_logger.Logger dllogger.init", "tracker", "log_dir")


# The ends of the names of those that start a run, or open its files.
STARTS = (
    *("init", "SummaryWriter", "start_run", "Experiment", "init_run", "Run", "start", "create_file_writer"),
    *("create_default_writer", "FileWriter", "configure", "Logger", "Visdom", "logging", "TensorboardXWriter"),
    *("sweep", "create_experiment", "Live", "FileStorageObserver", "MongoObserver", "TensorBoard"),
    *("OfflineExperiment", "ExistingExperiment", "TensorboardLogger", "WandBLogger", "MLflowLogger", "ClearMLLogger"),
    *("NeptuneLogger", "VisdomLogger", "PolyaxonLogger"),
)


# Methods of writers of TensorBoard: who calls them has to have one.
WRITING = (
    *("add_scalar", "add_scalars", "add_image", "add_images", "add_histogram", "add_figure", "add_text", "add_video"),
    *("add_audio", "add_graph", "add_hparams", "add_embedding", "add_pr_curve"),
)


def _loads() -> Iterator[Effect]:
    yield from each("torch.load torch.jit.load", "load", 0, "f")
    yield from of("safetensors.torch", "load_file load_model", "load", 0, "filename")
    yield from of("numpy", "load", "read", 0, "file")
    yield from each("pickle.load joblib.load", "load", 0, "file", "filename")
    yield Effect("flax.training.checkpoints.restore_checkpoint", "load", (0, "ckpt_dir"))
    yield Effect("equinox.tree_deserialise_leaves", "load", (0, "path_or_file"))
    for word in ("read_text", "read_bytes"):
        yield Effect(f"pathlib.Path.{word}", "read", receiver=True)
    yield from each("pandas.read_csv pandas.read_json pandas.read_parquet", "read", 0, "filepath_or_buffer", "path")
    yield from each("datasets.load_from_disk", "read", 0, "dataset_path")
    yield Effect("*.load_state_dict", "restore", receiver=True)


def _published() -> Iterator[Effect]:
    yield from of("*", "push_to_hub", "publish")
    yield from of("huggingface_hub", "upload_file upload_folder create_repo create_commit", "publish")
    yield from of("huggingface_hub.HfApi", "upload_file upload_folder create_repo create_commit", "publish")
    yield from of("*", "upload_file upload_fileobj upload_from_filename upload_from_string put_object", "publish")


def _commands() -> Iterator[Effect]:
    for word in ["run", "call", "check_call", "check_output", "Popen", "getoutput", "getstatusoutput"]:
        yield Effect(f"subprocess.{word}", "command", (0, "args", "cmd"))
    yield from each("os.system os.popen", "command", 0, "command", "cmd")


def _samples() -> Iterator[Effect]:
    yield from each("print rich.print", "print")
    yield from of("*", "generate", "sample")


# What is neither written nor fetched.
REST: tuple[Effect, ...] = (*_changes(), *_trackers(), *_loads(), *_published(), *_commands(), *_samples())
