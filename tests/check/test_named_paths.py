"""What a path is called, not in which settings it stands, tells whether weights are loaded (AR504)."""

from __future__ import annotations

import pytest

from allranks.check.engine import Settings, check

LEARNER = """\
import torch
from torch.nn.parallel import DistributedDataParallel


class Learner:
    def learn(self, args, config):
        self.model = DistributedDataParallel(self.model.cuda())
        self.resume(args, config)

    def resume(self, args, config):
        self.optimizer.load_state_dict(torch.load({path}))
"""


@pytest.mark.parametrize(
    ("path", "found"),
    [
        ("config['learner']['optimizer_path']", [11]),
        ("args.resume", [11]),
        ("args.vocab_path", []),
        ("args.folder / 'manifest.pt'", []),
        ("args.manifest", []),
        ("config['learner']['rng_path']", []),
    ],
)
def test_settings_say_nothing_of_what_lies_at_a_path(path: str, found: list[int]) -> None:
    """`config[...]` and `args` hold paths of checkpoints as of anything else."""
    outcome = check({"learner.py": LEARNER.format(path=path).encode()}, Settings(select=("AR504",)))
    assert [finding.place.line for finding in outcome.findings] == found


STARTED = """import torch
import torch.distributed as dist
from torchvision import models


def train(args, resume):
    if args.small:
        weights = {first}
        net = models.resnet18()
    else:
        weights = "/data/pretrained_models/" + args.large
        net = models.resnet50()
    net.load_state_dict(torch.load(weights))
    net = net.cuda()
    optimizer = torch.optim.Adam(net.parameters())
    if resume:
        optimizer.load_state_dict(torch.load(args.last, map_location="cpu"))
    fit(net, optimizer)


dist.init_process_group("nccl")
train(read(), True)
"""


@pytest.mark.parametrize(
    ("first", "found"), [('"/data/pretrained_models/" + args.small', ["low"]), ("args.last_run", ["high"])]
)
def test_weights_that_somebody_has_published_lie_on_the_cpu(first: str, found: list[str]) -> None:
    """As far as all that is stored under the name of the path says so."""
    outcome = check({"train.py": STARTED.format(first=first).encode()}, Settings(select=("AR504",)))
    assert [finding.confidence for finding in outcome.findings] == found


SHARED = """import os
import torch
import torch.distributed as dist
{imported}


def prepare(state):
    if dist.get_rank() == 0:
        torch.save(state, os.path.join({folder}, "vocabulary.pt"))


def main(state):
    dist.init_process_group("nccl")
    prepare(state)
    use()


def use():
    return torch.load({other} + "/vocabulary.pt")


main({{}})
"""


@pytest.mark.parametrize(
    ("imported", "folder", "other", "found"),
    [
        ("from paths import CACHE", "CACHE", "CACHE", [19]),
        ("import paths", "paths.CACHE", "paths.CACHE", [19]),
        ("import work.paths", "work.paths.CACHE", "work.paths.CACHE", [19]),
        ("from .paths import CACHE", "CACHE", "CACHE", [19]),
        ("from paths import CACHE, RUNS", "CACHE", "RUNS", []),
        ("import paths", "paths.CACHE", "paths.RUNS", []),
    ],
)
def test_what_is_imported_is_the_same_in_every_function(
    imported: str, folder: str, other: str, found: list[int]
) -> None:
    """A folder of another module, that rank 0 fills in one function and all read in the next (AR405)."""
    text = SHARED.format(imported=imported, folder=folder, other=other)
    outcome = check({"train.py": text.encode()}, Settings(select=("AR405",)))
    assert [finding.place.line for finding in outcome.findings] == found


UNBOUND = """from pathlib import Path
import torch.distributed as dist


def clean(old, new):
    if dist.get_rank() == 0:
        Path.unlink(old)
    Path.read_text({})


dist.init_process_group("nccl")
clean("old.txt", "new.txt")
"""


@pytest.mark.parametrize(("read", "found"), [("new", []), ("old", [8])])
def test_a_method_of_the_class_takes_the_path_as_its_first_argument(read: str, found: list[int]) -> None:
    """``Path.unlink(path)`` is about the path, and not about ``Path`` (AR405)."""
    outcome = check({"train.py": UNBOUND.format(read).encode()}, Settings(select=("AR405",)))
    assert [finding.place.line for finding in outcome.findings] == found


FETCHED = """
import torch.distributed as dist

def fetch(key, to, store):
    if isinstance(store, Store):
        store.fetch(key, to)
    else:
        store.download_file({given})

dist.init_process_group("nccl")
fetch("tokens.bin", folder(), store())
"""


@pytest.mark.parametrize(
    ("given", "expected"), [("key, Filename=str(to)", ["AR106"]), ("remote_name=key, destination=str(to)", [])]
)
def test_a_method_that_is_called_as_a_known_one_is_another_where_its_path_is_called_otherwise(
    given: str, expected: list[str]
) -> None:
    found = check({"train.py": FETCHED.format(given=given).encode()}, Settings(select=("AR106",))).findings
    assert [f.code for f in found] == expected
