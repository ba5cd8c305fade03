"""The second seed: four ranks of Lightning load what has other names, and whatever goes wrong with that is told."""

from __future__ import annotations

import re
from collections.abc import Mapping
from statistics import fmean
from typing import Any

import pytest
import training

Ended = list[tuple[str, Any]]  # of each rank: ("returned", its losses), or an error's name and text

pytestmark = pytest.mark.needs("lightning", "sklearn", "PIL")
FINETUNE = {
    "right": "",
    "again": "",
    "nothing loaded": "--break partial-load",
    "nothing loaded, unseen": "--break partial-load --without-allranks",
    "before fit": "--break rank0-load",
    "after DDP": "--break after-wrap",
    "after DDP, unseen": "--break after-wrap --without-allranks",
    "no first sync": "--break init-sync --no-gate",
    "not centred": "--break normalisation",
    "a step skipped": "--break skipped-step",
}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Ended]:
    """A small model is trained, and fine-tuned in all of these ways, by the same four processes."""
    folder = tmp_path_factory.mktemp("topoflow")
    small = f"--checkpoint {folder}/baseline.ckpt --samples 128"
    outs = {name: folder / name.partition(",")[0].replace(" ", "-") for name in FINETUNE} | {"again": folder / "right"}
    found, _ = training.ends_of(
        "topoflow_finetune",
        f"pretrain {small} --steps 30",
        *(f"finetune {small} --steps 12 --out {outs[name]} {flags}" for name, flags in FINETUNE.items()),
        out=folder / "ends.json",
        by="lightning_cases.py",
    )
    return dict(zip(("pretrained", *FINETUNE), found, strict=True))


def returned(ended: Ended) -> list[Any]:
    assert {how for how, _ in ended} == {"returned"}, ended
    return [result for _, result in ended]


def raised(ended: Ended, name: str) -> str:
    """Return what the error says that every rank has raised."""
    assert [how for how, _ in ended] == [name] * 4, ended
    assert len({text.partition(": ")[2] for _, text in ended}) == 1, "ranks say different things"
    return str(ended[0][1])


def test_the_first_loss_is_the_one_that_was_recorded(runs: Mapping[str, Ended]) -> None:
    """Two parameters are new, all others are loaded under other names; another start goes on from what was saved."""
    recorded = returned(runs["pretrained"])[0]
    before, after = (fmean(losses) for losses in zip(*returned(runs["right"]), strict=True))
    assert before == pytest.approx(recorded, rel=0.01)
    assert after < before
    assert [losses[0] for losses in returned(runs["again"])] == [losses[1] for losses in returned(runs["right"])]


def test_names_that_do_not_fit_are_refused(runs: Mapping[str, Ended]) -> None:
    """Without us the training begins anew, in silence; with us it does not begin, and the names that fit are told."""
    recorded = returned(runs["pretrained"])[0]
    assert fmean(losses[0] for losses in returned(runs["nothing loaded, unseen"])) > 5 * recorded
    text = raised(runs["nothing loaded"], "DoesNotFit")
    assert 'rename={"model.*": "climax.*", "*.fc1.*": "*.0.*", "*.fc2.*": "*.2.*"}' in text


def test_weights_on_one_rank_only_are_told(runs: Mapping[str, Ended]) -> None:
    """Loaded after DDP was made, or without its first broadcast: by the first loss, and by a vote over the weights."""
    recorded = returned(runs["pretrained"])[0]
    first = [losses[0] for losses in returned(runs["after DDP, unseen"])]
    assert first[0] < 2 * recorded
    assert min(first[1:]) > 5 * recorded
    text = raised(runs["after DDP"], "NotResumed")
    assert re.search(r"on rank 0, [\d.]+ on ranks 1-3. Were the weights loaded on some ranks only\?", text)
    text = raised(runs["no first sync"], "Mismatch")
    assert "leaf 'model/climax.place', float32[36, 48], on rank 0 against ranks 1-3" in text


def test_what_was_taken_for_the_bug_is_none(runs: Mapping[str, Ended]) -> None:
    """Loaded by rank 0 before fit(): DDP sends its weights to all ranks when it is made."""
    assert returned(runs["before fit"]) == returned(runs["right"])


def test_a_loss_that_begins_elsewhere_stops_the_job(runs: Mapping[str, Ended]) -> None:
    """All weights are loaded, and the inputs are not those of the training: only the loss can tell."""
    text = raised(runs["not centred"], "NotResumed")
    assert "are the inputs scaled" in text


def test_a_rank_that_skips_a_step_is_named(runs: Mapping[str, Ended]) -> None:
    """At the next comparison, in the middle of the training."""
    assert "on rank 2 against ranks 0-1, 3" in raised(runs["a step skipped"], "Mismatch")
