"""Calls that write checkpoints and other files."""

from __future__ import annotations

from collections.abc import Iterator

from allranks.check.tables.effects import Effect, each, of


def _checkpoints() -> Iterator[Effect]:
    yield Effect("torch.save", "checkpoint", (1, "f"))
    yield from of("safetensors.torch", "save_file save_model", "checkpoint", 1, "filename")
    yield from of("safetensors.numpy", "save_file", "checkpoint", 1, "filename")
    yield from of("safetensors.flax", "save_file", "checkpoint", 1, "filename")
    yield Effect("pickle.dump", "checkpoint", (1, "file"))
    yield from each("joblib.dump", "checkpoint", 1, "filename")
    yield Effect("flax.training.checkpoints.save_checkpoint", "checkpoint", (0, "ckpt_dir"))
    yield Effect("equinox.tree_serialise_leaves", "checkpoint", (0, "path_or_file"))
    # transformers, diffusers and peft: a process that is told not to be the main one writes nothing; nor does one whose
    # weights Accelerate or XLA saves. Of a model of NxD, which takes its optimizer along, each writes its own shards.
    told = (("is_main_process", ...), ("save_function", ...), ("optimizer", ...))
    yield Effect("*.save_pretrained", "checkpoint", (0, "save_directory"), unless=told)
    yield from each("*.save_weights", "checkpoint", 0, "filepath")
    yield from each("*.save_lora_weights", "checkpoint", 0, "save_directory")
    # detectron2's writes on rank 0, unless it is told otherwise; that of fvcore, wherever it is not told not to.
    yield Effect("detectron2.checkpoint.DetectionCheckpointer", "checkpoint", (1, "save_dir"), only_if="save_to_disk")
    off = (("save_to_disk", False),)
    yield Effect("fvcore.common.checkpoint.Checkpointer", "checkpoint", (1, "save_dir"), unless=off)
    yield from _exported()
    yield Effect("torch.onnx.export", "checkpoint", (2, "f"))
    yield from each("onnx.save onnx.save_model", "checkpoint", 1, "f")
    for owner in ("keras.callbacks", "tensorflow.keras.callbacks"):
        yield from of(owner, "ModelCheckpoint", "checkpoint", 0, "filepath")


def _exported() -> Iterator[Effect]:
    """Yield what writes a model in the form of another framework, or for those who serve it."""
    yield from each("torch.jit.save torch.export.save", "checkpoint", 1, "f")
    yield from of("*", "to_onnx to_torchscript", "checkpoint", 0, "file_path")
    yield Effect("tensorflow.train.Saver.save", "checkpoint", (1, "save_path"))
    yield from of("tensorflow.train.Checkpoint", "save write", "checkpoint", 0, "file_prefix")
    yield Effect("tensorflow.train.CheckpointManager.save", "checkpoint")
    yield Effect("tensorflow.train.MonitoredTrainingSession", "checkpoint", ("checkpoint_dir",))
    yield Effect("tensorflow.estimator.Estimator", "checkpoint", ("model_dir", 1))
    for owner in ("keras", "tensorflow.keras"):
        yield Effect(f"{owner}.models.save_model", "checkpoint", (1, "filepath"))
        yield Effect(f"{owner}.callbacks.BackupAndRestore", "checkpoint", (0, "backup_dir"))
    yield Effect("tensorflow.saved_model.save", "checkpoint", (1, "export_dir"))
    yield from of("*", "save_parameters", "checkpoint", 0, "filename")
    yield from each("mxnet.model.save_checkpoint mxnet.callback.do_checkpoint", "checkpoint", 0, "prefix")
    yield Effect("sentence_transformers.SentenceTransformer.save", "checkpoint", (0, "path"))
    yield from each("mlflow.pytorch.save_model mlflow.sklearn.save_model", "checkpoint", 1, "path")


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
    yield from each("json.dump yaml.dump yaml.safe_dump toml.dump", "file", 1, "fp", "stream")
    yield Effect("omegaconf.OmegaConf.save", "file", (1, "f"))
    yield from of("numpy", "save savez savez_compressed savetxt", "file", 0, "file", "fname")
    yield from of("jax.numpy", "save savez", "file", 0, "file")
    yield Effect("scipy.io.savemat", "file", (0, "file_name"))
    tables = "to_csv to_json to_parquet to_pickle to_excel to_feather to_hdf"
    for owner in ("*", "pandas.DataFrame", "pandas.Series"):
        yield from of(owner, tables, "file", 0, "path_or_buf", "path", "excel_writer")
    yield from of("*", "save_to_disk", "file", 0, "dataset_path")
    yield from of("matplotlib.pyplot", "savefig imsave", "file", 0, "fname")
    yield from of("*", "savefig write_html write_image", "file", 0, "fname", "file")
    yield from each("imageio.imwrite imageio.imsave imageio.mimsave imageio.mimwrite", "file", 0, "uri")
    yield from each("imageio.v2.imwrite imageio.v2.mimsave imageio.v3.imwrite", "file", 0, "uri")
    yield Effect("cv2.imwrite", "file", (0, "filename"))
    yield Effect("PIL.Image.Image.save", "file", (0, "fp"))
    yield from each("torchvision.utils.save_image", "file", 1, "fp")
    yield from each("torchaudio.save soundfile.write torchvision.io.write_video", "file", 0, "uri", "filename", "file")
    yield from each("scipy.io.wavfile.write", "file", 0, "filename")
    yield from each("detectron2.utils.events.JSONWriter", "append", 0, "json_file")
    yield from each("dllogger.JSONStreamBackend", "append", 1, "filename")
    yield from of("logging", "FileHandler", "append", 0, "filename")
    handlers = "RotatingFileHandler TimedRotatingFileHandler WatchedFileHandler"
    yield from of("logging.handlers", handlers, "append", 0, "filename")
    yield Effect("logging.basicConfig", "append", ("filename",), only_if="filename")
    for name, driven in (("h5py.File", "driver"), ("netCDF4.Dataset", "parallel")):  # in common, processes write one
        yield Effect(name, "file", (0, "name", "filename"), modes="wax+", unless=((driven, ...),))
    for name in ("zipfile.ZipFile", "tarfile.open", "zarr.open"):
        yield Effect(name, "file", (0, "file", "name", "store"), modes="wax+")
    yield Effect("jsonlines.open", "file", (0, "file"), modes="wax+")
    yield from of("*", "export_chrome_trace export_stacks export_memory_timeline", "file", 0, "path")
    yield Effect("torch.cuda.memory._dump_snapshot", "file", (0, "filename"))
    yield from of("*", "to_netcdf to_zarr write_parquet", "file", 0, "path", "store", "file")
    yield from each("pyarrow.parquet.write_table pyarrow.csv.write_csv", "file", 1, "where", "output_file")
    yield from each("mmcv.dump mmengine.dump mmengine.fileio.dump faiss.write_index", "file", 1, "file", "fname")
    yield from each("cv2.VideoWriter imageio.get_writer imageio.v2.get_writer", "file", 0, "filename", "uri")
    yield from each("tensorflow.io.TFRecordWriter tensorflow.python_io.TFRecordWriter", "file", 0, "path")
    yield from each(
        "tensorflow.io.write_file tifffile.imwrite skimage.io.imsave", "file", 0, "filename", "fname", "file"
    )
    yield from each("scipy.sparse.save_npz ase.io.write", "file", 0, "file", "filename")
    yield from each("nibabel.save SimpleITK.WriteImage", "file", 1, "filename", "fileName")
    yield from of("open3d.io", "write_point_cloud write_triangle_mesh", "file", 0, "filename")
    yield Effect("loguru.logger.add", "append", (0, "sink"))
    yield from each("shutil.copy shutil.copyfile shutil.copy2 shutil.copytree", "file", 1, "dst")
    yield from each("shutil.make_archive", "file", 0, "base_name")
    yield from _arrays()
    yield from _media()


def _arrays() -> Iterator[Effect]:
    """Yield what writes arrays, tables and settings."""
    yield Effect("numpy.memmap", "file", (0, "filename"), modes="w")
    yield Effect("numpy.lib.format.open_memmap", "file", (0, "filename"), modes="w")
    yield Effect("*.tofile", "file", (0, "fid", "file"))
    yield from of("zarr", "save save_group save_array", "file", 0, "store")
    for name in ("zarr.open_group", "zarr.open_array"):
        yield Effect(name, "file", (0, "store"), modes="w")
    yield Effect("pandas.ExcelWriter", "file", (0, "path"))
    yield Effect("tables.open_file", "file", (0, "filename"), modes="wa+")
    yield from each("pyarrow.parquet.ParquetWriter", "file", 0, "where")
    yield from each("pyarrow.feather.write_feather", "file", 1, "dest")
    yield from of("*", "write_csv write_ndjson write_ipc sink_parquet sink_csv", "file", 0, "file", "path")
    yield from each("webdataset.TarWriter webdataset.ShardWriter", "file", 0, "fileobj", "pattern")
    yield from each("streaming.MDSWriter streaming.base.MDSWriter", "file", "out")
    yield Effect("array_record.python.array_record_module.ArrayRecordWriter", "file", (0, "path"))
    yield Effect("tokenizers.Tokenizer.save", "file", (0, "path"))
    yield from of("*", "to_json_file save_to_json", "file", 0, "json_file_path", "json_path")
    yield Effect("*.to_disk", "file", (0, "path"))
    yield from of("*", "dump_stats", "file", 0, "filename", "file")
    yield Effect("jax.profiler.save_device_memory_profile", "file", (0, "filename"))
    yield from each("distutils.dir_util.copy_tree distutils.file_util.copy_file", "file", 1, "dst")
    for owner in ("keras.callbacks", "tensorflow.keras.callbacks"):
        yield Effect(f"{owner}.CSVLogger", "append", (0, "filename"))


def _media() -> Iterator[Effect]:
    """Yield what writes pictures, films and sound."""
    yield from of("torchvision.io", "write_png write_jpeg", "file", 1, "filename")
    yield from each("torchvision.io.write_file librosa.output.write_wav", "file", 0, "filename", "path")
    yield from of("*", "write_videofile write_gif write_audiofile", "file", 0, "filename")
    yield from of("matplotlib.animation", "FuncAnimation.save ArtistAnimation.save", "file", 0, "filename")
    yield from of("diffusers.utils", "export_to_video", "file", 1, "output_video_path")
    yield from of("diffusers.utils", "export_to_gif", "file", 1, "output_gif_path")
    yield from of("diffusers.utils", "export_to_ply export_to_obj", "file", 1, "output_ply_path", "output_obj_path")
    for owner in ("gym.wrappers", "gymnasium.wrappers"):
        yield from of(owner, "RecordVideo Monitor", "file", 1, "video_folder", "directory")


WRITTEN: tuple[Effect, ...] = (*_checkpoints(), *_files())
