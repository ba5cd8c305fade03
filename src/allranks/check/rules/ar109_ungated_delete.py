"""AR109: every rank deletes or renames the same path."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from allranks.check.program import Event, Program
from allranks.check.rule import Example, ProgramRule
from allranks.findings import Finding

_LINKS = ("symlink", "link", "symlink_to", "hardlink_to", "link_to")
_LINKED = "One process makes the link; the others raise FileExistsError."
_RENAMES = ("rename", "replace", "renames", "move")
_FORGIVES = re.compile(r"^`rm\s+-\w*f")  # what is not there is no error


class UngatedDelete(ProgramRule):
    """
    ## What it does
    Finds a file or directory that every process deletes, renames, moves or links to.

    ## Why is this bad
    The first process removes it. The others raise `FileNotFoundError`, or remove what the first one has written since.

    ## What happens with N processes
    One of N succeeds. The others end with an error, and the job with them. Or a slow rank deletes the new file.

    ## Known problems
    A path on a disk of the node is rightly deleted once per node; declare it with `node-local-paths`. A file that every
    rank writes and then renames is reported where it is written (AR101, AR102).

    Confidence is low for `rm -rf`, which never fails, and for a layer over file systems and buckets (a module `io.py`,
    a class `FileSystem`): of 3 such findings none was right.

    ## Use instead
    Delete on rank 0, and let the others wait at a barrier before they use the path.

    ## Fix safety
    There is no automatic fix.
    """

    code, name, severity, row = "AR109", "ungated-delete", "error", "gating"
    cluster = "One process removes it; the others raise FileNotFoundError, or remove what was written since."
    advice = "Delete, rename or link on rank 0 only, then let the others wait at a barrier."
    bad = (
        Example(
            {
                "train.py": """\
import shutil
import torch.distributed as dist

dist.init_process_group("nccl")
shutil.rmtree("out")
"""
            },
            at=(5,),
        ),
        Example(
            {
                "train.py": """\
import torch.distributed as dist
from fsspec.core import url_to_fs

dist.init_process_group("nccl")
fs, path = url_to_fs("gs://bucket/run/last")
if fs.exists(path):
    fs.rm(path, recursive=True)
"""
            },
            at=(7,),
        ),
    )
    good = (
        Example(
            {
                "train.py": """\
import shutil
import tempfile
import torch.distributed as dist

dist.init_process_group("nccl")
if dist.get_rank() == 0:
    shutil.rmtree("out")
mine = tempfile.mkdtemp()
shutil.rmtree(mine)
"""
            }
        ),
    )

    def check(self, program: Program) -> Iterator[Finding]:
        written = {_place(e) for e in program.effects("file", "append", "checkpoint", "download") if e.target}
        deleted = {_place(e) for e in program.ungated("delete") if e.name.rpartition(".")[2] not in _LINKS}
        for event in program.ungated("delete"):
            if event.name.rpartition(".")[2] in _RENAMES and _place(event) in written:
                continue
            if event.name.rpartition(".")[2] in _LINKS:
                if _place(event) in deleted:  # told of where the old one is deleted
                    continue
                yield self.found(event, f"every rank makes the link {event.target or event.name}", cluster=_LINKED)
                continue
            what = f"runs {event.command}" if event.command else f"deletes or moves {event.target or event.name}"
            found = self.found(event, f"every rank {what}")
            low = event.of_a_store or _FORGIVES.search(event.command)
            yield replace(found, confidence="low") if low else found


def _place(event: Event) -> tuple[str, str]:
    """Return what an effect is on: a path as it stands in one function."""
    return event.function, event.target
