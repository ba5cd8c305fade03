"""What must not stop the engine: optional imports, bodies of imported modules, generics, new names, declared paths."""

from __future__ import annotations

from typing import Any

import pytest

from allranks.check.engine import Settings, check

Files = dict[str, str]
MAKES = "import os\n\nif not os.path.isdir('cache'):\n    os.mkdir('cache')\n"
START = "import torch.distributed as dist\n\ndist.init_process_group('nccl')\n"
CASES: dict[str, tuple[Files, list[str]]] = {
    "a package that may not be there": (
        {
            "train.py": "try:\n    import wandb\n    there = True\nexcept ImportError:\n    there = False\n"
            f"{START}if there:\n    wandb.init(project='p')\n"
        },
        ["AR103"],
    ),
    "a package that may be None": (
        {
            "train.py": "try:\n    import wandb\nexcept ImportError:\n    wandb = None\n"
            f"{START}if wandb is not None:\n    wandb.init(project='p')\n"
        },
        ["AR103"],
    ),
    "a rank that may not be there": (
        {
            "train.py": f"{START}import torch\ntry:\n    rank = dist.get_rank()\nexcept RuntimeError:\n    rank = 0\n"
            "if rank == 0:\n    torch.save({}, 'm.pt')\n"
        },
        [],
    ),
    "data that JAX's processes are dealt in another file": (
        {
            "train.py": "from lib.data import mine\n\nfor x in mine([1, 2]):\n    pass\nopen('log.txt', 'w')\n",
            "lib/data.py": "import jax\n\ndef mine(x):\n    return x[jax.process_index() :: jax.process_count()]\n",
        },
        ["AR102"],
    ),
    "a rank that is only told in another file": (
        {
            "train.py": "from lib.data import told\n\ntold('begun')\nopen('log.txt', 'w')\n",
            "lib/data.py": "import jax\n\ndef told(what):\n    return f'{jax.process_index()}: {what}'\n",
        },
        [],
    ),
    "a switch that a configuration may turn": (
        {
            "train.py": f"{START}import wandb\nlogs = False\nexec(open('configurator.py').read())\n"
            "if logs:\n    wandb.init(project='p')\n"
        },
        ["AR103"],
    ),
    "a switch of the module that a function turns off on a condition": (
        {
            "train.py": f"{START}import wandb\nlogs = True\n\ndef main(args):\n    global logs\n"
            "    if not args.logs:\n        logs = False\n    if logs:\n        wandb.init(project='p')\n\nmain(1)\n"
        },
        ["AR103"],
    ),
    "a decorator that many functions have": (
        {
            "train.py": f"{START}import wandb\n\ndef logged(f):\n    def call(*args):\n        return f(*args)\n"
            "    return call\n\n"
            + "".join(f"@logged\ndef f{n}():\n    wandb.log({{}})\n\n" for n in range(5))
            + "@logged\ndef start():\n    wandb.init(project='p')\n\nstart()\n"
        },
        ["AR103"],
    ),
    "a name that the project's own broadcast sends": (
        {
            "train.py": f"{START}import os\nimport time\nfrom comm import broadcast\n\nstamp = time.strftime('%H')\n"
            "broadcast(stamp)\nos.makedirs(stamp, exist_ok=True)\n",
            "comm.py": "import torch.distributed as dist\n\ndef broadcast(x, src=0):\n    dist.broadcast(x, src)\n",
        },
        [],
    ),
    "a folder that is this process' own unless another is given": (
        {
            "train.py": f"{START}from torchvision.datasets import MNIST\n\ndef main(args):\n"
            "    MNIST(args.data or f'data-{dist.get_rank()}', download=True)\n\nmain(1)\n"
        },
        ["AR106"],
    ),
    "a function of another package that says what it does": (
        {
            "train.py": f"{START}from ai.files import maybe_download, save_json\n\ndef main(url):\n"
            "    maybe_download(url)\n    save_json({}, 'a.json')\n\nmain(1)\n"
        },
        ["AR106", "AR102"],
    ),
    "a class of another package that says what it does": (
        {"train.py": f"{START}from ai.board import SummaryWriter\n\nSummaryWriter('runs')\n"},
        ["AR103"],
    ),
    "a tracker in an attribute that one process fills": (
        {
            "train.py": f"{START}from torch.utils.tensorboard import SummaryWriter\n\nclass T:\n"
            "    def __init__(self):\n        self.tb = None\n        if dist.get_rank() == 0:\n"
            "            self.tb = SummaryWriter('runs')\n\n    def train(self):\n"
            "        if self.tb:\n            self.tb.add_text('a', 'b')\n        self.tb.add_scalar('a', 1)\n\n"
            "T().train()\n"
        },
        ["AR103"],
    ),
    "an object that one process calls, by its decorator": (
        {
            "train.py": f"{START}import functools\n\ndef master_only(f):\n    @functools.wraps(f)\n"
            "    def call(*args):\n        if dist.get_rank() == 0:\n            return f(*args)\n\n    return call\n\n"
            "class Log:\n    @master_only\n    def __call__(self, x):\n        open('a.txt', 'w').write(x)\n\n"
            "log = Log()\nlog('a')\n"
        },
        [],
    ),
    "one that is told the rank": (
        {
            "train.py": f"{START}from ai.files import maybe_download, save_json\n\ndef main(url):\n"
            "    maybe_download(url, rank=dist.get_rank())\n    save_json({}, f'{dist.get_rank()}.json')\n\nmain(1)\n"
        },
        [],
    ),
    "a blob that is deleted": (
        {
            "train.py": f"{START}from google.cloud import storage\n\n"
            "for blob in storage.Client().bucket('b').list_blobs():\n    blob.delete()\n"
        },
        ["AR109"],
    ),
    "a folder of checkpoints that Orbax erases": (
        {"train.py": f"{START}import orbax.checkpoint as ocp\n\nocp.test_utils.erase_and_create_empty('gs://b/c')\n"},
        ["AR109"],
    ),
    "an upload to a bucket": (
        {"train.py": f"{START}import boto3\n\nboto3.client('s3').upload_file('a', 'bucket', 'a')\n"},
        ["AR102"],
    ),
    "the body of a module that is imported": (
        {"train.py": f"{START}import lib.paths\n", "lib/paths.py": MAKES},
        ["AR108"],
    ),
    "the body of a module that an imported one imports": (
        {
            "train.py": f"{START}from lib import a\n",
            "lib/__init__.py": "",
            "lib/a.py": "from lib import b\n",
            "lib/b.py": MAKES,
        },
        ["AR108"],
    ),
    "what a module does as a program": (
        {
            "train.py": f"{START}import tool\n",
            "tool.py": "import os\n\nif __name__ == '__main__' and not os.path.isdir('x'):\n    os.mkdir('x')\n",
        },
        [],
    ),
    "a module that nobody imports": (
        {"train.py": START, "tool.py": MAKES},
        [],
    ),
    "a class with its parameter": (
        {
            "data.py": "import torchvision\nfrom split import part\n\ndef rows(folder):\n"
            "    data = torchvision.datasets.MNIST(folder, download=True)\n    return part(data)\n",
            "split.py": "from torch.utils.data import DistributedSampler\n\ndef part(data):\n"
            "    return DistributedSampler[int](data)\n",
        },
        ["AR106"],
    ),
    "an old name of the rank": (
        {
            "train.py": "import jax\nfrom lib import write\n\ndef main():\n    if jax.host_id() == 0:\n"
            "        print('starts')\n    write()\n\nmain()\n",
            "lib.py": "import tensorflow.compat.v2 as tf\n\ndef write():\n    tf.io.gfile.copy('a', 'b')\n",
        },
        ["AR102"],
    ),
    "a package that brings its names in when they are asked for": (
        {
            "src/allranks/__init__.py": "def __getattr__(name):\n    return name\n",
            "train.py": "import allranks\nimport torch\n\nallranks.init()\ntorch.save({}, 'm.pt')\n",
        },
        ["AR101"],
    ),
    "a function that a decorator holds": (
        {
            "train.py": f"{START}import functools\n\ndef timed(f):\n    @functools.wraps(f)\n    def inner(*args):\n"
            "        return f(*args)\n    return inner\n\n@timed\ndef mean(x):\n    dist.all_reduce(x)\n\n"
            "if dist.get_rank() == 0:\n    mean(1)\n"
        },
        ["AR201"],
    ),
    "one of several functions, which a setting picks": (
        {
            "train.py": f"{START}def run(args):\n    if args.plain:\n        from plain import save\n    else:\n"
            "        from pickled import save\n    save(args)\n\nrun(object())\n",
            "plain.py": "def save(x):\n    open('x.txt', 'w')\n",
            "pickled.py": "import torch\n\ndef save(x):\n    torch.save(x, 'x.pt')\n",
        },
        ["AR101", "AR102"],
    ),
    "an object of one of several classes, that a function makes": (
        {
            "train.py": f"{START}from keepers import make\n\nkeeper = make(open('s').read())\nkeeper.keep({{}})\n",
            "keepers.py": "import torch\n\nclass A:\n    def keep(self, x):\n        open('x.txt', 'w')\n\nclass B:\n"
            "    def keep(self, x):\n        torch.save(x, 'x.pt')\n\ndef make(kind):\n"
            "    return A() if kind == 'a' else B()\n\nclass C:\n    def keep(self, x):\n        open('y.txt', 'w')\n",
        },
        ["AR102", "AR101"],
    ),
    "the fifth function that one decorator wraps": (
        {
            "train.py": "from cli import wrap\nimport torch\nimport torch.distributed as dist\n\n"
            + "".join(f"@wrap\ndef other_{at}():\n    pass\n\nother_{at}()\n\n" for at in range(4))
            + "@wrap\ndef main():\n    dist.init_process_group('nccl')\n    open('x.txt', 'w')\n\nmain()\n",
            "cli.py": "def wrap(f):\n    def inner():\n        return f()\n    return inner\n",
        },
        ["AR102"],
    ),
    "whether a file is there, asked in a function of few words": (
        {
            "train.py": f"{START}from lib import has\n\nif has('x'):\n    dist.barrier()\n",
            "lib.py": "import os\n\ndef has(path):\n    return os.path.isfile(path)\n",
        },
        ["AR203"],
    ),
    "an option that a module reads when it is asked for it, and notes down for type checkers": (
        {
            "train.py": f"{START}import envs\n\nif envs.LOG_DIR:\n    open('x.txt', 'w')\n"
            "open(f'{envs.RANK}.txt', 'w')\nopen(f'/tmp/{envs.LOCAL_RANK}', 'w')\n",
            "envs.py": "import os\nfrom typing import TYPE_CHECKING\n\n"
            "if TYPE_CHECKING:\n    LOG_DIR: str | None = None\n    RANK: int\n    LOCAL_RANK: int = 0\n\n"
            "def __getattr__(name):\n    return os.environ.get(name)\n",
        },
        ["AR102"],
    ),
    "of two modules of one name that which lies higher": (
        {
            "train.py": f"{START}import data_utils\n\ndata_utils.keep()\n",
            "data_utils/__init__.py": "def keep():\n    open('x.txt', 'w')\n",
            "tasks/data_utils.py": "def keep():\n    pass\n",
        },
        ["AR102"],
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_the_engine_goes_on_where_programs_do(case: str) -> None:
    files, expected = CASES[case]
    sources = {path: text.encode() for path, text in files.items()}
    found = check(sources, Settings()).findings
    assert [f.code for f in found if f.code[:3] in ("AR1", "AR2")] == expected


def gated(path: str, **settings: Any) -> list[str]:
    """Return what is found of a save by the first process of each node."""
    text = (
        f"{START}import os\nimport torch\n\ndef save(folder):\n    torch.save({{}}, os.path.join(folder, 'm.pt'))\n\n"
    )
    text += f"if int(os.environ['LOCAL_RANK']) == 0:\n    save({path})\n"
    return [f.code for f in check({"train.py": text.encode()}, Settings(select=("AR105",), **settings)).findings]


def test_declared_paths_are_followed_into_functions() -> None:
    """A disk of the node is fine with one writer a node; what is declared wins over what a name sounds like."""
    assert gated("'/data/run'") == ["AR105"]
    assert gated("'/data/run'", node_local_paths=("/data/**",)) == []
    assert gated("f'/data/{1}'", node_local_paths=("/data",)) == []
    assert gated("'/tmp/run'") == []
    assert gated("os.environ['TMPDIR']") == []
    assert gated("'/tmp/run'", shared_paths=("/tmp/**",)) == ["AR105"]


def test_a_function_that_was_given_up_is_named() -> None:
    """Never silently; what was understood of it stands."""
    deep = "x = torch" + ".a(1)" * 400
    text = f"{START}import torch\n\ndef f():\n    torch.save({{}}, 'm.pt')\n    {deep}\n    dist.barrier()\n\nf()\n"
    found = check({"train.py": text.encode()}, Settings()).findings
    assert [(f.code, f.severity, f.place.line) for f in found] == [("AR903", "info", 6), ("AR101", "error", 7)]


def test_functions_that_were_given_up_are_named_in_one_remark() -> None:
    """A program of which much is too deep drowns no finding in remarks."""
    deep = "x = torch" + ".a(1)" * 400
    body = f"    {deep}\n    dist.barrier()\n"
    text = f"{START}import torch\n\ndef f():\n{body}\ndef g():\n{body}\nf()\ng()\n"
    (found,) = check({"train.py": text.encode()}, Settings()).findings
    assert found.message.endswith("; and 1 more")
    assert [note.place.line for note in found.notes if note.place] == [10]
