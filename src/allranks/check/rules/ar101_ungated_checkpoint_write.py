"""AR101: every rank writes the same checkpoint."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from allranks.check.program import Event, Program
from allranks.check.rule import Example, ProgramRule
from allranks.findings import Finding

# Of a mixture of experts each process has its own. What is pickled goes to no text: the other branch writes that.
_EXPERT, _TEXT = re.compile(r"(?i)expert"), re.compile(r"\.(jsonl?|txt|csv|tsv|ya?ml|html|md)$")
# What somebody starts as one process, once: an export, a conversion, a look at the data, an inference, a talk.
_ONCE = re.compile(r"(?i)^_?(export|onnx|convert|io_?test)|^_?to_(onnx|torchscript)")
_TALK = re.compile(r"(?i)chat|demo|infer|gradio|web_?ui|interactive|playground")


class UngatedCheckpointWrite(ProgramRule):
    """
    ## What it does
    Finds a checkpoint that every process writes to the same path: no rank guard is between the entry and the write, and
    the path does not depend on the rank.

    ## Why is this bad
    Several writers of one file tear it. A reader sees half of it. The final file can consist of parts of different
    ranks and still load.

    ## What happens with N processes
    N processes open, truncate and write one file at once. Measured: 96 % of concurrent reads were torn, and 7 of 40
    final files held bytes of several ranks.

    ## Known problems
    A path that only the launcher makes different for each process is not seen. Declare it with `node-local-paths`.
    Confidence is low in programs that one process mostly runs, by their name (an export, a conversion, a demo).

    ## Use instead
    Let all ranks do what they must do together (gather shards). Let only rank 0 write, to a temporary name that is then
    renamed. Or save with `allranks.Checkpointer`, which does that.

    ## Fix safety
    There is no automatic fix: a guard around code that gathers would stop the job.
    """

    code, name, severity, row = "AR101", "ungated-checkpoint-write", "error", "checkpoint save"
    cluster = "N processes write this file at the same time: it can be torn, or consist of parts of several ranks."
    advice = (
        "Write on rank 0 only, to a temporary name that is then renamed; keep gathers and barriers outside the guard."
    )
    bad = (
        Example(
            {
                "train.py": """\
import torch
import torch.distributed as dist

dist.init_process_group("nccl")
model = torch.nn.Linear(2, 2)
torch.save(model.state_dict(), "model.pt")
"""
            },
            at=(6,),
        ),
        Example(
            {
                "train.py": """\
import torch.distributed as dist
from tools.files import save_checkpoint

def main():
    dist.init_process_group("nccl")
    save_checkpoint({}, "last.pt")

if __name__ == "__main__":
    main()
""",
                "tools/files.py": """\
import torch as t

def save_checkpoint(state, path):
    t.save(state, path)
""",
            },
            at=(4,),
            where="tools/files.py",
        ),
    )
    good = (
        Example(
            {
                "train.py": """\
import torch
import torch.distributed as dist

dist.init_process_group("nccl")
if dist.get_rank() == 0:
    torch.save({}, "model.pt")
torch.save({}, f"shard-{dist.get_rank()}.pt")
"""
            }
        ),
        Example({"single.py": "import torch\n\ntorch.save({}, 'model.pt')\n"}),
    )

    def check(self, program: Program) -> Iterator[Finding]:
        opened = {event.place: event.target for event in program.effects("file")}
        spelled = {event.place: event.spelled for event in program.effects("file")}
        saved = list(program.ungated("checkpoint"))
        told = {event.opened for event in saved}  # where it is written, not a second time where it is opened
        files = (e for e in program.ungated("file") if e.holds_state and e.opened is None and e.place not in told)
        for event in (*saved, *files):
            if event.name.endswith(".save_weights") and len(event.arguments) > 1:
                continue  # of a model that is handed over: not what Keras calls so
            name = (event.opened and opened.get(event.opened)) or event.target or event.name
            found = self.found(event, f"every rank writes the checkpoint {name}")
            text = event.opened is not None and _TEXT.search(spelled.get(event.opened, "")) is not None
            low = program.finds_done(event) or _EXPERT.search(name) or text or _is_of_one(event, program)
            yield replace(found, confidence="low") if low else found


def _is_of_one(event: Event, program: Program) -> bool:
    """Whether it is in what one process does by itself, by its name or that of its program; or in a private function
    that nobody calls."""
    name, start = event.symbol.rpartition(".")[2], event.start.place.path.rpartition("/")[2]
    unused = name.startswith("_") and not event.chain
    return bool(_ONCE.search(name) or _TALK.search(start)) or (unused and program.facts.nobody_calls(event.symbol))
