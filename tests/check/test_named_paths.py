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
