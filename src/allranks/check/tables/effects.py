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
    "absent",
]
# What gives a file another name: where it then lies, it is as a whole.
MOVES = frozenset(["rename", "replace", "renames", "move"])


@dataclass(frozen=True, slots=True)
class Effect:
    """``pattern`` does ``kind`` to what the parameter ``path`` (position from 0, or keyword) names.

    ``muted`` starts a tracker that does nothing on some ranks; ``folder`` makes a directory that may be there already;
    ``read`` opens a file to read; ``command`` runs a program, and does what that does (`tables.commands`); ``load``
    reads a checkpoint; ``restore`` puts what was read into a model or an optimizer; ``moved``: a file is under this
    name from then on; ``named``: the folder of a run gets a name (`tables.runs`);
    ``absent``: a tracker is used that only some ranks have; ``fetched``: a folder is filled by one process at a time.

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


def _each(words: str, kind: Kind, *path: int | str) -> Iterator[Effect]:
    for word in words.split():
        yield Effect(word, kind, path)


def _of(owner: str, words: str, kind: Kind, *path: int | str) -> Iterator[Effect]:
    for word in words.split():
        yield Effect(f"{owner}.{word}", kind, path)


def _checkpoints() -> Iterator[Effect]:
    yield Effect("torch.save", "checkpoint", (1, "f"))
    yield from _of("safetensors.torch", "save_file save_model", "checkpoint", 1, "filename")
    yield from _of("safetensors.numpy", "save_file", "checkpoint", 1, "filename")
    yield from _of("safetensors.flax", "save_file", "checkpoint", 1, "filename")
    yield Effect("pickle.dump", "checkpoint", (1, "file"))
    yield from _each("joblib.dump", "checkpoint", 1, "filename")
    yield Effect("flax.training.checkpoints.save_checkpoint", "checkpoint", (0, "ckpt_dir"))
    yield Effect("equinox.tree_serialise_leaves", "checkpoint", (0, "path_or_file"))
    # transformers, diffusers and peft: a process that is told not to be the main one writes nothing.
    yield Effect("*.save_pretrained", "checkpoint", (0, "save_directory"), unless=(("is_main_process", ...),))
    yield from _each("*.save_weights", "checkpoint", 0, "filepath")
    yield from _each("*.save_lora_weights", "checkpoint", 0, "save_directory")
    # detectron2's writes on rank 0, unless it is told otherwise; that of fvcore, wherever it is not told not to.
    yield Effect("detectron2.checkpoint.DetectionCheckpointer", "checkpoint", (1, "save_dir"), only_if="save_to_disk")
    off = (("save_to_disk", False),)
    yield Effect("fvcore.common.checkpoint.Checkpointer", "checkpoint", (1, "save_dir"), unless=off)
    yield Effect("torch.jit.save", "checkpoint", (1, "f"))
    yield Effect("torch.onnx.export", "checkpoint", (2, "f"))
    yield from _each("onnx.save onnx.save_model", "checkpoint", 1, "f")
    for owner in ("keras.callbacks", "tensorflow.keras.callbacks"):
        yield from _of(owner, "ModelCheckpoint", "checkpoint", 0, "filepath")


def _files() -> Iterator[Effect]:
    yield Effect("open", "file", (0, "file"), modes="wax+")
    for name in ("codecs.open", "gzip.open", "bz2.open", "lzma.open", "fsspec.open", "smart_open.open"):
        yield Effect(name, "file", (0, "filename", "urlpath", "uri", "file"), modes="wax+")
    for name in ("tensorflow.io.gfile.GFile", "tensorflow.io.gfile.Open", "tensorflow.io.gfile.open"):
        yield Effect(name, "file", (0, "name"), modes="wax+")
    yield Effect("tensorflow.io.gfile.copy", "file", (1, "dst"))
    yield Effect("pathlib.Path.open", "file", receiver=True, modes="wax+")
    for word in ("write_text", "write_bytes", "touch"):
        yield Effect(f"pathlib.Path.{word}", "file", receiver=True)
    for word in ("write_text", "write_bytes"):
        yield Effect(f"*.{word}", "file", receiver=True)
    yield from _each("json.dump yaml.dump yaml.safe_dump toml.dump", "file", 1, "fp", "stream")
    yield Effect("omegaconf.OmegaConf.save", "file", (1, "f"))
    yield from _of("numpy", "save savez savez_compressed savetxt", "file", 0, "file", "fname")
    yield from _of("jax.numpy", "save savez", "file", 0, "file")
    yield Effect("scipy.io.savemat", "file", (0, "file_name"))
    tables = "to_csv to_json to_parquet to_pickle to_excel to_feather to_hdf"
    for owner in ("*", "pandas.DataFrame", "pandas.Series"):
        yield from _of(owner, tables, "file", 0, "path_or_buf", "path", "excel_writer")
    yield from _of("*", "save_to_disk", "file", 0, "dataset_path")
    yield from _of("matplotlib.pyplot", "savefig imsave", "file", 0, "fname")
    yield from _of("*", "savefig write_html write_image", "file", 0, "fname", "file")
    yield from _each("imageio.imwrite imageio.imsave imageio.mimsave imageio.mimwrite", "file", 0, "uri")
    yield from _each("imageio.v2.imwrite imageio.v2.mimsave imageio.v3.imwrite", "file", 0, "uri")
    yield Effect("cv2.imwrite", "file", (0, "filename"))
    yield Effect("PIL.Image.Image.save", "file", (0, "fp"))
    yield from _each("torchvision.utils.save_image", "file", 1, "fp")
    yield from _each("torchaudio.save soundfile.write torchvision.io.write_video", "file", 0, "uri", "filename", "file")
    yield from _each("scipy.io.wavfile.write", "file", 0, "filename")
    yield from _each("detectron2.utils.events.JSONWriter", "append", 0, "json_file")
    yield from _each("dllogger.JSONStreamBackend", "append", 1, "filename")
    yield from _of("logging", "FileHandler", "append", 0, "filename")
    handlers = "RotatingFileHandler TimedRotatingFileHandler WatchedFileHandler"
    yield from _of("logging.handlers", handlers, "append", 0, "filename")
    yield Effect("logging.basicConfig", "append", ("filename",), only_if="filename")
    for name, driven in (("h5py.File", "driver"), ("netCDF4.Dataset", "parallel")):  # in common, processes write one
        yield Effect(name, "file", (0, "name", "filename"), modes="wax+", unless=((driven, ...),))
    for name in ("zipfile.ZipFile", "tarfile.open", "zarr.open"):
        yield Effect(name, "file", (0, "file", "name", "store"), modes="wax+")
    yield Effect("jsonlines.open", "file", (0, "file"), modes="wax+")
    yield from _of("*", "export_chrome_trace export_stacks export_memory_timeline", "file", 0, "path")
    yield Effect("torch.cuda.memory._dump_snapshot", "file", (0, "filename"))
    yield from _of("*", "to_netcdf to_zarr write_parquet", "file", 0, "path", "store", "file")
    yield from _each("pyarrow.parquet.write_table pyarrow.csv.write_csv", "file", 1, "where", "output_file")
    yield from _each("mmcv.dump mmengine.dump mmengine.fileio.dump faiss.write_index", "file", 1, "file", "fname")
    yield from _each("cv2.VideoWriter imageio.get_writer imageio.v2.get_writer", "file", 0, "filename", "uri")
    yield from _each("tensorflow.io.TFRecordWriter tensorflow.python_io.TFRecordWriter", "file", 0, "path")
    yield from _each(
        "tensorflow.io.write_file tifffile.imwrite skimage.io.imsave", "file", 0, "filename", "fname", "file"
    )
    yield from _each("scipy.sparse.save_npz ase.io.write", "file", 0, "file", "filename")
    yield from _each("nibabel.save SimpleITK.WriteImage", "file", 1, "filename", "fileName")
    yield from _of("open3d.io", "write_point_cloud write_triangle_mesh", "file", 0, "filename")
    yield Effect("loguru.logger.add", "append", (0, "sink"))
    yield from _each("shutil.copy shutil.copyfile shutil.copy2 shutil.copytree", "file", 1, "dst")
    yield from _each("shutil.make_archive", "file", 0, "base_name")


# A directory may be there already.
_THERE = (("exist_ok", True), (2, True))


def _changes() -> Iterator[Effect]:
    yield Effect("shutil.rmtree", "delete", (0, "path"))
    yield Effect("orbax.checkpoint.test_utils.erase_and_create_empty", "delete", (0, "directory"))
    yield from _each("os.remove os.unlink os.rmdir os.removedirs", "delete", 0, "path")
    yield from _each("os.rename os.replace os.renames shutil.move", "delete", 0, "src")
    yield from _each("os.symlink os.link", "delete", 1, "dst")
    yield from _of("tensorflow.io.gfile", "remove rmtree rename", "delete", 0, "path", "src")
    yield Effect("pathlib.Path.unlink", "delete", receiver=True, unless=(("missing_ok", True),))
    for word in ("rmdir", "rename", "replace", "symlink_to", "hardlink_to"):
        yield Effect(f"pathlib.Path.{word}", "delete", receiver=True)
    yield Effect("*.symlink_to", "delete", receiver=True)
    yield Effect("*.link_to", "delete", receiver=True)
    yield Effect("*.unlink", "delete", receiver=True, unless=(("missing_ok", True),))
    yield from _of("*", "delete_blob delete_blobs delete_object delete_objects", "delete", 0, "Key", "Delete")
    yield Effect("*.rm", "delete", (0, "path"))  # of file systems: those of fsspec, the path managers of iopath
    yield Effect("os.mkdir", "mkdir", (0, "path"))
    yield Effect("os.makedirs", "mkdir", (0, "name"), unless=_THERE)
    yield Effect("pathlib.Path.mkdir", "mkdir", receiver=True, unless=_THERE)
    yield Effect("*.mkdir", "mkdir", receiver=True, unless=_THERE)
    yield Effect("tensorflow.io.gfile.mkdir", "mkdir", (0, "path"))


def _trackers() -> Iterator[Effect]:
    yield Effect("wandb.init", "tracker", unless=(("mode", "disabled"),))
    yield from _of("wandb", "log log_artifact save watch finish", "tracker")
    yield Effect("torch.utils.tensorboard.SummaryWriter", "tracker", (0, "log_dir", "logdir"))
    yield from _each("flax.metrics.tensorboard.SummaryWriter", "tracker", 0, "log_dir")
    yield from _each("tensorflow.summary.create_file_writer", "tracker", 0, "logdir")
    yield from _of("mlflow", "start_run set_experiment log_metric log_metrics log_param log_params", "tracker")
    yield from _of("mlflow", "log_artifact log_artifacts log_figure log_dict", "tracker")
    yield from _each("comet_ml.Experiment comet_ml.ExistingExperiment comet_ml.start", "tracker")
    yield from _each("neptune.init_run neptune.init neptune.new.init clearml.Task.init aim.Run", "tracker")
    yield from _each("swanlab.init swanlab.log trackio.init trackio.log", "tracker")
    # clu's writes event files wherever it is not told to log alone.
    for name in ("clu.metric_writers.create_default_writer", "clu.metric_writers.utils.create_default_writer"):
        yield Effect(name, "tracker", (0, "logdir"), unless=(("just_logging", True),))
    yield from _of("clu.metric_writers", "SummaryWriter summary_writer.SummaryWriter", "tracker", 0, "logdir")
    yield from _each("tensorflow.summary.FileWriter tensorboard_logger.configure", "tracker", 0, "logdir")
    for owner in ("ignite.contrib.engines.common", "ignite.contrib.handlers", "ignite.handlers"):
        yield from _of(owner, "setup_tb_logging TensorboardLogger", "tracker", 0, "log_dir", "output_path")
        yield from _of(owner, "setup_wandb_logging setup_mlflow_logging setup_visdom_logging", "tracker")
    yield from _of("detectron2.utils.events", "TensorboardXWriter", "tracker", 0, "log_dir")
    yield from _each("alchemy.Logger visdom.Visdom tensorboard_logger.Logger dllogger.init", "tracker", "log_dir")


# The ends of the names of those that start a run, or open its files.
STARTS = (
    *("init", "SummaryWriter", "start_run", "Experiment", "init_run", "Run", "start", "create_file_writer"),
    *("create_default_writer", "FileWriter", "configure", "Logger", "Visdom", "logging", "TensorboardXWriter"),
)


# Methods of writers of TensorBoard: who calls them has to have one.
WRITING = (
    *("add_scalar", "add_scalars", "add_image", "add_images", "add_histogram", "add_figure", "add_text", "add_video"),
    *("add_audio", "add_graph", "add_hparams", "add_embedding", "add_pr_curve"),
)


def _downloads() -> Iterator[Effect]:
    """Yield what fetches into a shared folder. Not here: what locks (hf_hub_download, load_dataset) or renames when it
    is done (tensorflow_datasets). What locks each file of a folder is ``fetched``."""
    for owner in ("huggingface_hub", "modelscope", "modelscope.hub.snapshot_download"):
        yield Effect(f"{owner}.snapshot_download", "fetched", ("local_dir",), only_if="local_dir")
    yield from _each("urllib.request.urlretrieve", "download", 1, "filename")
    yield from _each("wget.download", "download", 1, "out")
    yield from _each("gdown.download gdown.cached_download gdown.download_folder", "download", 1, "output")
    yield from _each("torch.hub.download_url_to_file", "download", 1, "dst")
    yield from _of("torchvision.datasets.utils", "download_url download_and_extract_archive", "download", 1, "root")
    yield from _of("*", "extractall", "download", 0, "path")
    yield from _of("torchvision.datasets.utils", "extract_archive", "download", 1, "to_path")
    yield from _of("torchvision.datasets.utils", "download_file_from_google_drive", "download", 1, "root")
    yield from _each("nltk.download gensim.downloader.load spacy.cli.download", "download")
    yield Effect("torch.hub.load", "download", unless=(("source", "local"),))
    for owner in ("timm.models.hub", "timm.models._hub"):
        yield from _of(owner, "download_cached_file", "download", 0, "url")
    yield from _each("clip.load", "download", "download_root")  # OpenAI's: looks for the file, then writes it
    yield from _each("whisper.load_model", "download", "download_root")
    yield from _each("keras.utils.get_file tensorflow.keras.utils.get_file", "download", 0, "fname", "cache_dir")
    yield from _of("torchtext.vocab", "Vectors GloVe FastText CharNGram", "download", "cache")
    yield from _each("torchtext.utils.download_from_url", "download", 1, "path", "root")
    yield from _each("torchtext.utils.extract_archive", "download", 1, "to_path")
    for owner in ("monai.apps", "monai.apps.utils"):
        yield from _of(owner, "download_url", "download", 1, "filepath")
        yield from _of(owner, "download_and_extract", "download", 2, "output_dir")
    yield from _of("torch_geometric.data", "download_url extract_zip extract_tar", "download", 1, "folder")
    yield from _of("sklearn.datasets", _SKLEARN, "download", "data_home")
    for owner in ("google.cloud.storage.Blob", "*"):
        yield from _of(owner, "download_to_filename", "download", 0, "filename")
    yield from _of("*", "download_file download_fileobj", "download", 2, "Filename", "Fileobj", 1)
    yield from _each("shutil.unpack_archive", "download", 1, "extract_dir")
    for owner in ("keras.datasets", "tensorflow.keras.datasets"):
        for name in ("mnist", "fashion_mnist", "cifar10", "cifar100", "imdb", "reuters"):
            yield Effect(f"{owner}.{name}.load_data", "download", (0, "path"))


_SKLEARN = "fetch_20newsgroups fetch_california_housing fetch_covtype fetch_kddcup99 fetch_lfw_people fetch_openml"
# Constructors that fetch what is not there, and process it into the same folder.
_FETCHING = {
    "torch_geometric.datasets": (
        *("Planetoid", "Reddit", "Reddit2", "Flickr", "Yelp", "AmazonProducts", "Amazon", "Coauthor", "PPI", "QM9"),
        *("ZINC", "TUDataset", "ModelNet", "ShapeNet", "S3DIS", "OGB_MAG", "MoleculeNet", "IMDB", "DBLP", "HGBDataset"),
        *("WikiCS", "GNNBenchmarkDataset", "MalNetTiny", "MD17", "OPFDataset", "RelLinkPredDataset", "MovieLens"),
    ),
    "ogb.nodeproppred": ("PygNodePropPredDataset", "DglNodePropPredDataset", "NodePropPredDataset"),
    "ogb.graphproppred": ("PygGraphPropPredDataset", "DglGraphPropPredDataset", "GraphPropPredDataset"),
    "ogb.linkproppred": ("PygLinkPropPredDataset", "DglLinkPropPredDataset", "LinkPropPredDataset"),
    "ogb.lsc": ("MAG240MDataset", "PCQM4Mv2Dataset", "PygPCQM4Mv2Dataset", "WikiKG90Mv2Dataset"),
    "dgl.data": ("CoraGraphDataset", "CiteseerGraphDataset", "PubmedGraphDataset", "RedditDataset", "PPIDataset"),
    "torchtext.datasets": ("AG_NEWS", "IMDB", "WikiText2", "WikiText103", "PennTreebank", "Multi30k", "SST2"),
}
# Constructors that fetch when they are told to.
_DOWNLOADING = {
    "torchvision.datasets": (
        *("MNIST", "FashionMNIST", "KMNIST", "EMNIST", "QMNIST", "CIFAR10", "CIFAR100", "SVHN", "STL10", "CelebA"),
        *("Caltech101", "Caltech256", "Food101", "Flowers102", "StanfordCars", "VOCDetection", "VOCSegmentation"),
        *("OxfordIIITPet", "DTD", "EuroSAT", "FGVCAircraft", "GTSRB", "Places365", "USPS", "Omniglot"),
    ),
    "monai.apps": ("DecathlonDataset", "MedNISTDataset", "TciaDataset"),
    "torchaudio.datasets": ("LIBRISPEECH", "LJSPEECH", "SPEECHCOMMANDS", "YESNO", "VCTK_092"),
}


def _datasets() -> Iterator[Effect]:
    for owner, names in _DOWNLOADING.items():
        for name in names:
            yield Effect(f"{owner}.{name}", "download", (0, "root", "root_dir"), only_if="download")
    for owner, names in _FETCHING.items():
        for name in names:
            yield Effect(f"{owner}.{name}", "download", ("root", "raw_dir", 0))


def _loads() -> Iterator[Effect]:
    yield from _each("torch.load torch.jit.load", "load", 0, "f")
    yield from _of("safetensors.torch", "load_file load_model", "load", 0, "filename")
    yield from _of("numpy", "load", "read", 0, "file")
    yield from _each("pickle.load joblib.load", "load", 0, "file", "filename")
    yield Effect("flax.training.checkpoints.restore_checkpoint", "load", (0, "ckpt_dir"))
    yield Effect("equinox.tree_deserialise_leaves", "load", (0, "path_or_file"))
    for word in ("read_text", "read_bytes"):
        yield Effect(f"pathlib.Path.{word}", "read", receiver=True)
    yield from _each("pandas.read_csv pandas.read_json pandas.read_parquet", "read", 0, "filepath_or_buffer", "path")
    yield from _each("datasets.load_from_disk", "read", 0, "dataset_path")
    yield Effect("*.load_state_dict", "restore", receiver=True)


def _published() -> Iterator[Effect]:
    yield from _of("*", "push_to_hub", "publish")
    yield from _of("huggingface_hub", "upload_file upload_folder create_repo create_commit", "publish")
    yield from _of("huggingface_hub.HfApi", "upload_file upload_folder create_repo create_commit", "publish")
    yield from _of("*", "upload_file upload_fileobj upload_from_filename upload_from_string put_object", "publish")


def _commands() -> Iterator[Effect]:
    for word in ["run", "call", "check_call", "check_output", "Popen", "getoutput", "getstatusoutput"]:
        yield Effect(f"subprocess.{word}", "command", (0, "args", "cmd"))
    yield from _each("os.system os.popen", "command", 0, "command", "cmd")


def _samples() -> Iterator[Effect]:
    yield from _each("print rich.print", "print")
    yield from _of("*", "generate", "sample")


EFFECTS: tuple[Effect, ...] = (
    *_checkpoints(),
    *_files(),
    *_changes(),
    *_trackers(),
    *_downloads(),
    *_datasets(),
    *_loads(),
    *_published(),
    *_commands(),
    *_samples(),
)
