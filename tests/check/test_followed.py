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
}


@pytest.mark.parametrize("case", CASES)
def test_the_engine_goes_on_where_programs_do(case: str) -> None:
    files, expected = CASES[case]
    sources = {path: text.encode() for path, text in files.items()}
    found = check(sources, Settings(extend_select=("AR106",))).findings
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
