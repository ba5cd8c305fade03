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
