"""What nothing calls: classes and functions that a program makes by the name under which they are kept."""

from __future__ import annotations

import pytest

from allranks.check.engine import Settings, check

START = "import torch.distributed as dist\n\ndist.init_process_group('nccl')\n"
ALONE = "import torch\n\ntorch.manual_seed(0)\n"
REGISTRY = "class R:\n    def register_module(self, name=None):\n        return lambda it: it\n\nDATASETS = R()\n"
MAKES = "        if not os.path.exists(self.root):\n            os.makedirs(self.root)\n"
BASE = "class Base:\n    def __init__(self, root):\n        self.root = root\n        self.load()\n\n"
# The file that makes a folder -> what is found in a program that joins others.
FILES: dict[str, tuple[str, list[str]]] = {
    "a class in a registry, whose base asks it to load": (
        (
            f"import os\nfrom registry import DATASETS\n\n{BASE}@DATASETS.register_module()\nclass Small(Base):\n"
            f"    def load(self):\n{MAKES}"
        ),
        ["AR108"],
    ),
    "a function in a registry": (
        "import gdown\n\n@register_model\ndef tiny(cfg):\n    gdown.download(cfg.url, 'tiny.pth')\n",
        ["AR106"],
    ),
    "a method of a class as decorator": (
        (
            "import wandb\nfrom lib import Callback\n\n@Callback.register('wandb')\nclass Log(Callback):\n"
            "    def __init__(self):\n        wandb.init(project='p')\n"
        ),
        ["AR103"],
    ),
    "a data set that the configuration names": (
        (
            "import os\nfrom torch.utils import data\n\nclass Small(data.Dataset):\n    def __init__(self, root):\n"
            f"        self.root = root\n{MAKES}"
        ),
        ["AR108"],
    ),
    "a data set that a function names": (
        (
            "import os\nfrom torch.utils import data\n\nclass Small(data.Dataset):\n    def __init__(self, root):\n"
            f"        self.root = root\n{MAKES}\ndef prepare():\n    Small('a')\n"
        ),
        [],
    ),
    "a hook": (
        (
            "from mmengine.hooks import Hook\n\nclass Keep(Hook):\n    def after_train_iter(self, runner):\n"
            "        open('out.txt', 'w').write('a')\n"
        ),
        ["AR102"],
    ),
    "a class that nobody keeps": (
        f"import os\n\nclass Small:\n    def __init__(self, root):\n        self.root = root\n{MAKES}",
        [],
    ),
    "a function for the end": (
        "import os\nimport atexit\n\n@atexit.register\ndef bye():\n    os.remove('pid')\n",
        [],
    ),
    "a command": ("import os\n\n@register_command('clean')\ndef clean(path):\n    os.makedirs(path)\n", []),
}


@pytest.mark.parametrize("what", FILES)
def test_what_is_made_by_its_name_is_made_on_every_process(what: str) -> None:
    """The configuration that names it is alike on all of them."""
    text, codes = FILES[what]
    assert _codes(START, text) == codes


@pytest.mark.parametrize("what", [name for name in FILES if name != "a hook"])
def test_a_program_alone_makes_it_once(what: str) -> None:
    """Where nothing joins other processes, a registry is no evidence of them."""
    assert _codes(ALONE, FILES[what][0]) == []


def _codes(program: str, text: str) -> list[str]:
    files = {"train.py": program, "registry.py": REGISTRY, "parts/small.py": text}
    found = check({path: body.encode() for path, body in files.items()}, Settings(select=("AR10", "AR110")))
    return [finding.code for finding in found.findings]
