"""Calls of libraries that write, track or fetch, on every rank and on the first one."""

from __future__ import annotations

import pytest

from allranks.check.engine import Settings, check

START = "import torch.distributed as dist\n\ndist.init_process_group('nccl')\n"
CALLS = {
    "import tensorflow as tf\nsaver = tf.train.Saver()": ("saver.save(session, 'model')", "AR101"),
    "import tensorflow as tf": ("tf.saved_model.save(net, 'out')", "AR101"),
    "from keras.models import save_model": ("save_model(net, 'net.h5')", "AR101"),
    "import torch": ("torch.export.save(program, 'net.pt2')", "AR101"),
    "net = make()": ("net.to_onnx('net.onnx')", "AR101"),
    "net = build()": ("net.save('net.keras')", "AR101"),
    "net = gluon()": ("net.save_parameters('net.params')", "AR101"),
    "import numpy as np": ("np.memmap('rows.bin', dtype='float32', mode='w+', shape=(3,))", "AR102"),
    "rows = load()": ("rows.tofile('rows.bin')", "AR102"),
    "import pyarrow.parquet as pq": ("pq.ParquetWriter('rows.parquet', schema)", "AR102"),
    "import webdataset as wds": ("wds.TarWriter('rows.tar')", "AR102"),
    "from diffusers.utils import export_to_video": ("export_to_video(frames, 'clip.mp4')", "AR102"),
    "import gymnasium as gym": ("gym.wrappers.RecordVideo(env, 'videos')", "AR102"),
    "cfg = read()": ("cfg.dump('config.py')", "AR102"),
    "import tensorflow.keras as keras": ("keras.callbacks.TensorBoard(log_dir='logs')", "AR103"),
    "from comet_ml import OfflineExperiment": ("OfflineExperiment()", "AR103"),
    "from dvclive import Live": ("Live()", "AR103"),
    "from ignite.contrib.handlers.wandb_logger import WandBLogger": ("WandBLogger(project='p')", "AR103"),
    "import kaggle": ("kaggle.api.dataset_download_files('a/b', path='data')", "AR106"),
    "from six.moves import urllib": ("urllib.request.urlretrieve(url, 'data.zip')", "AR106"),
}
QUIET = {
    "a map that is read": ("import numpy as np", "np.memmap('rows.bin', 'float32', 'r')"),
    "a store of which each writes its part": ("import zarr", "zarr.open_group('rows.zarr')"),
    "settings as a text": ("cfg = read()", "text = cfg.dump()"),
    "a model that knows how to save itself": (
        "class Net:\n    def save(self, path):\n        pass\nnet = make()",
        "net.save('net.pt')",
    ),
}


def codes(text: str) -> list[str]:
    found = check({"train.py": text.encode()}, Settings(select=("AR10",))).findings
    return [one.code for one in found]


@pytest.mark.parametrize("before", CALLS)
def test_what_every_rank_does_is_found(before: str) -> None:
    """And not where rank 0 does it."""
    does, code = CALLS[before]
    assert codes(f"{START}{before}\n{does}\n") == [code]
    assert codes(f"{START}{before}\nif dist.get_rank() == 0:\n    {does}\n") == []


@pytest.mark.parametrize("what", QUIET)
def test_what_writes_nothing_is_left_be(what: str) -> None:
    before, does = QUIET[what]
    assert codes(f"{START}{before}\n{does}\n") == []


def test_who_is_given_no_folder_writes_nothing() -> None:
    """`checkpoint_dir=None` on all ranks but the first."""
    opens = "import tensorflow as tf\ntf.train.MonitoredTrainingSession(checkpoint_dir={})\n"
    assert codes(START + opens.format("'out'")) == ["AR101"]
    assert codes(START + opens.format("'out' if dist.get_rank() == 0 else None")) == []
