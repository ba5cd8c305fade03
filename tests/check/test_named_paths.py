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
