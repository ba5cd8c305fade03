"""Find weights of a checkpoint file that were not loaded into any parameter of the model."""

from __future__ import annotations

from collections.abc import Iterator

from allranks.findings import Finding
from allranks.rehearse.judge.base import Case, Kind, finding

PARTIAL = Kind(
    "AR502",
    "partial-load-unchecked",
    "error",
    "Training goes on from first weights where the file had others: the loss starts anew, and nobody is reported.",
    "Load with strict=True, or strip the wrapper's prefix (module., _orig_mod.) and look at missing_keys.",
)
UNTIED = Kind(
    "AR016",
    "tied-weights-lost",
    "error",
    "Two parameters are trained where the model has one: more memory, another model, and a checkpoint with both.",
    "Tie them again after this call (model.head.weight = model.embedding.weight, tie_weights()), before it is wrapped.",
)


def judge(case: Case) -> Iterator[Finding]:
    """Yield a finding for each line that drops arrays of a file, while parameters of the model get no value."""
    reported: set[object] = set()
    for event in case.trace.of("load"):
        lost, unset, keys = event.data["lost"], event.data["unset"], event.data["keys"]
        if event.where in reported or not lost or not unset:
            continue
        reported.add(event.where)
        text = (
            f"{lost} of {keys} arrays of the file go nowhere ({event.data['unexpected'][0]}, ...), and {unset} of the "
            f"model keep their first values ({event.data['missing'][0]}, ...)"
        )
        one = finding(PARTIAL, text, event, [(f"rank {event.rank}: load_state_dict with strict=False", event)])
        if one is not None:
            yield one
    yield from _untied(case)


def _untied(case: Case) -> Iterator[Finding]:
    """Yield a finding for each line after which parameters are no longer one parameter, though they were."""
    reported: set[object] = set()
    for event in case.trace.of("untied"):
        if event.where not in reported:
            reported.add(event.where)
            names = " and ".join(event.data["names"])
            text = f"{names} were one parameter before {event.data['function']} here, and are several when trained"
            one = finding(UNTIED, text, event, [(f"rank {event.rank}: {event.data['function']}", event)])
            if one is not None:
                yield one
