"""Effects that are told by their arguments: commands for a shell, files that others open, lines that go into a file."""

from __future__ import annotations

import pytest

from allranks.check.engine import Settings, check
from allranks.check.tables.commands import doing

START = "import os\nimport subprocess\nimport torch.distributed as dist\n\ndist.init_process_group('nccl')\n"
COMMANDS = {
    "wget -q {url}": "download",
    "curl -sSLo data.tgz {url}": "download",
    "curl {url} > data.tgz": "download",
    "wget -q -O - {url}": None,
    "aws s3 cp s3://b/x - | tar -x": "download",
    "curl -s http://169.254.169.254/": None,
    "cd data && tar -zxf a.tgz": "download",
    "tar xf a.tar": "download",
    "tar czf a.tgz runs": None,
    "CUDA_HOME=/x pip install -e .": "download",
    "git clone https://x.y/z": "download",
    "git rev-parse HEAD": None,
    "aws s3 cp s3://b/x {folder}": "download",
    "aws s3 cp {folder} s3://b/x": "publish",
    "/usr/bin/make -C csrc": "file",
    "python3 setup.py build_ext --inplace": "file",
    "sudo rm -rf {cache}": "delete",
    "mkdir runs": "mkdir",
    "mkdir -p runs": None,
    "nvidia-smi": None,
    "gcc --version | head -n1": None,
    "cd csrc && nvcc -V": None,
    "make --help; make": "file",
    "hf download {repo} --local-dir {folder}": None,
    "huggingface-cli download {repo} && unzip {name}": "download",
    "{command}": None,
}
DONE = {
    "a data set that nobody knows": (
        "from medmnist import PathMNIST\n\nPathMNIST(split='train', download=True)\n",
        ["AR106"],
    ),
    "a data set that is there": ("from medmnist import PathMNIST\n\nPathMNIST(split='train', download=False)\n", []),
    "a log of loguru": ("from loguru import logger\n\nlogger.add('log.txt')\n", ["AR102"]),
    "lines of loguru": ("import sys\nfrom loguru import logger\n\nlogger.add(sys.stderr)\n", []),
    "a file beside another, with the rank in its name": (
        "from pathlib import Path\n\nbeside = Path('a.txt').with_name(f'{dist.get_rank()}.txt')\nopen(beside, 'w')\n",
        [],
    ),
    "a file beside another": ("from pathlib import Path\n\nopen(Path('a.txt').with_name('b.txt'), 'w')\n", ["AR102"]),
    "a trace": ("def keep(profile):\n    profile.export_chrome_trace('a.json')\n\nkeep(None)\n", ["AR102"]),
    "a command in parts": ("subprocess.run(['make', '-C', where])\n", ["AR102"]),
    "a command that is put together": ("os.system('wget -O data.zip ' + url)\n", ["AR106"]),
    "a command in a variable": (
        "command = f'unzip {name} -d data'\nsubprocess.check_call(command, shell=True)\n",
        ["AR106"],
    ),
    "a command that is filled in": ("os.system('rm -rf {}'.format(folder))\n", ["AR109"]),
    "a command for a folder of each rank": ("os.system(f'cp cache/0/* cache/{dist.get_rank()} 2>/dev/null')\n", []),
    "a command in parts for such a folder": ("subprocess.run(['cp', '-r', 'a', 'b/%d' % dist.get_rank()])\n", []),
    "a command for such a folder, filled in": ("os.system('rm -rf {}'.format(dist.get_rank()))\n", []),
    "a command that reads each rank's own": ("os.system(f'cp log-{dist.get_rank()}.txt log.txt')\n", ["AR102"]),
    "a command of rank 0": ("if dist.get_rank() == 0:\n    os.system('wget http://x.y/z')\n", []),
    "a command that only asks": ("subprocess.check_output(['git', 'rev-parse', 'HEAD'])\n", []),
    "a file that an opener of others opens": (
        "from iopath.common.file_io import g_pathmgr\nwith g_pathmgr.open('config.yaml', 'w') as f:\n    pass\n",
        ["AR102"],
    ),
    "a file that a file system opens": (
        "def put(fs, at):\n    fs.open(at, mode='wb')\n\nput(fs, 'x.bin')\n",
        ["AR102"],
    ),
    "a path of which nothing is known": ("def put(path):\n    path.open('w').write('a')\n\nput(path)\n", ["AR102"]),
    "a file that is read": (
        "def get(fs, name):\n    return fs.open(name), fs.open(name, 'rb')\n\nget(fs, 'x.bin')\n",
        [],
    ),
    "a part of an archive": ("import zipfile\nzipfile.ZipFile('a.zip').open('b', 'w')\n", []),
    "a line printed into a file": ("log = open('log.txt', 'a')\nprint('a', file=log)\n", ["AR102"]),
    "a printed line": ("import sys\nprint('a', file=sys.stderr)\nprint('b')\n", []),
}


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_does_what_its_program_does(command: str) -> None:
    """Programs that fetch, unpack, build or delete are known by their names and by what they are told."""
    assert doing(command) == COMMANDS[command]


@pytest.mark.parametrize("what", DONE)
def test_what_a_call_does_is_told_by_its_arguments(what: str) -> None:
    """The same calls do nothing to files with other arguments."""
    body, codes = DONE[what]
    found = check({"train.py": (START + body).encode()}, Settings(select=("AR10", "AR110"))).findings
    assert [finding.code for finding in found] == codes, found
