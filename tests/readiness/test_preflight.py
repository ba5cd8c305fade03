"""Preflight on ranks: in simulation, on real ones, and from the command line."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from harness import clean_environ

import allranks
from allranks.errors import NotReady
from allranks.readiness import preflight as preflighting
from allranks.readiness.generators import global_draws_row
from allranks.world.base import World
from allranks.world.detect import single_world
from allranks.world.simulated import SimulatedWorld


def names(error: NotReady, *beginnings: str) -> bool:
    """Whether the message has one line for each of these, in this order, that begins so."""
    lines = str(error).partition("not ready for the first step: ")[2].splitlines()
    return len(lines) == len(beginnings) and all(map(str.startswith, lines, beginnings))


def test_every_rank_hears_of_what_one_rank_has_wrong(monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    """In a world of 40, on five hosts; the table is printed once."""
    monkeypatch.setattr(preflighting, "import_adapter", lambda _: None)
    monkeypatch.setattr(preflighting, "has_jaxlib", lambda: False)

    def program(world: World) -> None:
        odd = world.rank == 17
        allranks.preflight(
            world,
            batch=400,
            data={"x": np.ones((11 if odd else 10, 2))},
            same={"config": {"lr": 0.2 if odd else 0.1, "seed": 0}},
            distinct={"seeds": 16 if odd else world.rank},
        )

    outcome = SimulatedWorld(40).run(program)
    assert len(outcome.errors) == 40
    assert str(outcome.errors[3]).startswith("rank 3: not ready for the first step: ")
    for error in outcome.errors.values():
        assert isinstance(error, NotReady)
        assert names(
            error,
            "leading dimension: rank 17: this rank brings 11 rows; its part is 10 of 400. ",
            "distinct: seeds: ranks 16 and 17 hold the same value; 1 of 40 are repeated, on ranks 16-17. ",
            "same: config: lr: ranks 0-16, 18-39: 0.1; rank 17: 0.2. ",
        )
    assert capsys.readouterr().err.count("400 = 40 ranks x 1 device x 10 x 1 accumulation") == 1


@pytest.mark.needs("jax")
@pytest.mark.world(n=2, devices=2, backend="jax")
def test_keys_flags_and_the_pool_on_real_ranks(world: World) -> None:
    """The keys of a healthy run are told apart; a flag that was set too late, and keys that are repeated, are not."""
    import jax

    key = jax.random.key(0)
    mine = jax.random.split(jax.random.fold_in(key, world.rank), jax.local_device_count())
    ready = allranks.preflight(
        world,
        batch=16,
        accumulation=2,
        data={"x": np.ones((4, 3))},
        same={"key of the parameters": key},
        distinct={"keys of dropout": mine},
    )
    found = {row.topic: row for row in ready.rows}
    assert not ready.errors
    assert found["batch"].texts[0] == "16 = 2 ranks x 2 devices x 2 x 2 accumulation"
    assert found["distinct: keys of dropout"].texts[0] == "4 on 2 ranks, all different"
    assert found["un-awaited steps"].verdict == "ok"
    whole = allranks.global_batch(jax.make_mesh((4,), ("d",)), {"x": np.full((8, 3), world.rank)})
    found = {row.topic: row for row in allranks.preflight(world, batch=16, data=whole).rows}
    assert found["leading dimension"].texts[0] == "global arrays of 16 rows"
    os.environ["XLA_FLAGS"] = "--xla_cpu_collective_timeout_seconds=5"
    os.environ["XLA_RENDEZVOUS_WAIT_SECONDS"] = "120"
    with pytest.raises(NotReady) as raised:
        allranks.preflight(world, distinct={"keys of dropout": jax.random.split(key, 2)})
    assert names(raised.value, "XLA flags: ", "distinct: keys of dropout: ")
    assert "have no effect" in str(raised.value)


@pytest.mark.needs("torch")
@pytest.mark.world(n=2, backend="torch")
def test_a_loader_without_a_sampler_on_real_ranks(world: World) -> None:
    """Every rank would read everything; with a sampler for other ranks than these, too."""
    import torch
    from torch.utils.data import DataLoader, TensorDataset
    from torch.utils.data.distributed import DistributedSampler

    data = TensorDataset(torch.arange(20))
    with pytest.raises(NotReady) as raised:
        allranks.preflight(world, batch=16, data=DataLoader(data, batch_size=8))
    assert names(
        raised.value,
        "each rank its own rows: no distributed sampler: every rank reads the whole dataset. ",
        "drop_last: drop_last is not set, and the last batch of an epoch has 4 rows instead of 8. ",
    )
    good = DataLoader(data, batch_size=8, sampler=DistributedSampler(data), drop_last=True)
    assert not allranks.preflight(world, batch=16, data=good).errors


@pytest.mark.needs("jax")
def test_the_command_on_two_ranks(tmp_path: Path) -> None:
    """One document, one exit code; what nothing reads is named, and a batch that cannot be cut is wrong."""
    (tmp_path / "train.py").write_text("print(1)")
    words = ["run", "-n", "2", "-d", "2", "--", sys.executable, "-m", "allranks", "preflight", "train.py"]
    environ = clean_environ({"XLA_RENDEZVOUS_WAIT_SECONDS": "120"})

    def command(*more: str) -> subprocess.CompletedProcess[str]:
        whole = [sys.executable, "-m", "allranks", *words, *more]
        return subprocess.run(whole, cwd=tmp_path, env=environ, capture_output=True, text=True, timeout=60)

    done = command("--batch", "8", "--json")
    assert done.returncode == 0, done.stdout
    document = json.loads("".join(line[4:] for line in done.stdout.splitlines() if line.startswith("[0] ")))
    checks = {row["topic"]: row for row in document["readiness"]}
    assert document["ready"]
    assert checks["environment"]["evidence"][0]["text"] == "nothing reads XLA_RENDEZVOUS_WAIT_SECONDS"
    assert checks["code"]["evidence"][0]["text"].startswith("1 file of the program")
    done = command("--batch", "6")
    assert done.returncode == 1
    assert "error    a batch of 6 rows cannot be divided evenly" in done.stdout


class NoisyRows:
    """A data set whose samples draw noise: seeded by sample, or not."""

    def __init__(self, *, seeded: bool) -> None:
        self.seeded = seeded

    def __len__(self) -> int:
        return 8

    def __getitem__(self, sample: int) -> float:
        if self.seeded:
            np.random.seed(sample)
        return float(np.random.random_sample())


class BrokenRows(NoisyRows):
    def __init__(self, error: Exception) -> None:
        super().__init__(seeded=False)
        self.error = error

    def __getitem__(self, sample: int) -> float:
        raise self.error


@pytest.mark.needs("torch")
def test_a_loader_that_draws_from_global_generators() -> None:
    """What sample 0 draws is given back. A data set that seeds by sample is not named."""
    import torch
    from torch.utils.data import DataLoader

    def row(loader: DataLoader) -> tuple[str, str, str]:
        found = global_draws_row(loader)
        assert found in allranks.preflight(single_world(), data=loader).rows
        return found.verdict, found.texts[0], found.remedy

    np.random.seed(3)
    verdict, text, remedy = row(DataLoader(NoisyRows(seeded=False), shuffle=True))  # type: ignore[arg-type]
    assert np.random.random_sample() == np.random.RandomState(3).random_sample()
    assert (verdict, text) == ("warning", "the order of the samples comes from torch; sample 0 draws from numpy.random")
    assert "allranks.RandomState(numpy=numpy.random, torch=torch)" in remedy
    generator = torch.Generator().manual_seed(0)
    assert row(DataLoader(NoisyRows(seeded=True), shuffle=True, generator=generator))[0] == "ok"  # type: ignore[arg-type]
    broken = BrokenRows(OSError("no row 0"))
    assert row(DataLoader(broken))[:2] == ("warning", "sample 0 cannot be read: OSError: no row 0")  # type: ignore[arg-type]
    assert row(DataLoader(BrokenRows(KeyError(0))))[0] == "ok"  # type: ignore[arg-type]
