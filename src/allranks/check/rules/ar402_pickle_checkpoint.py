"""AR402: arrays of JAX are pickled."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from allranks.check.rule import Example, LocalRule
from allranks.check.sources.source import File
from allranks.check.tree.syntax import distributed, speaks_of
from allranks.check.tree.syntax import name_of as called
from allranks.findings import Finding

_STATE = re.compile(r"(^|_)(params|opt_state|train_state|state|ckpt|checkpoint|model)($|_)")
_ON_HOST = re.compile(r"device_get|process_allgather|asarray|to_bytes|unreplicate|numpy|host")
_PICKLES = ("pickle.dump", "pickle.dumps", "joblib.dump")


class PickleCheckpoint(LocalRule):
    """
    ## What it does
    Finds parameters or a train state of JAX that are pickled.

    ## Why is this bad
    Pickling fetches each array. An array that spans processes cannot be fetched. What can be loaded later depends on
    the versions of all libraries.

    ## What happens with N processes
    With FSDP, RuntimeError ("spans non-addressable devices") at the first save. With replicated arrays, every process
    writes.

    ## Known problems
    Arrays that were brought to the host in another function are reported. The rule is off unless selected.

    ## Use instead
    `allranks.Checkpointer`, or Orbax.
    """

    code, name, severity, row = "AR402", "pickle-checkpoint", "info", "checkpoint save"
    default = False
    cluster = "An array that spans processes cannot be pickled: the first save under FSDP raises."
    advice = "Use a checkpoint library in which each process writes its own part."
    words = ("pickle.dump", "joblib")
    nodes = (ast.Call,)
    calls = _PICKLES
    bad = (
        Example(
            {
                "train.py": """\
import pickle
import jax

if jax.process_index() == 0:
    pickle.dump({"params": params}, open("model.pkl", "wb"))
"""
            },
            at=(5,),
        ),
    )
    good = (
        Example(
            {
                "train.py": """\
import pickle
import jax

if jax.process_index() == 0:
    pickle.dump(jax.device_get(params), open("model.pkl", "wb"))
    pickle.dump(vocabulary, open("words.pkl", "wb"))
"""
            }
        ),
        Example({"train.py": "import pickle\n\npickle.dump(params, open('model.pkl', 'wb'))\n"}),
    )

    def visit(self, node: ast.AST, file: File) -> Iterator[Finding]:
        if not isinstance(node, ast.Call) or called(node, file) not in _PICKLES or not node.args:
            return
        what = node.args[0]
        if "jax" not in file.imports.values() or not distributed(file):
            return
        if speaks_of(what, _STATE) and not speaks_of(what, _ON_HOST):
            yield self.local(file, node, f"{ast.unparse(what)} is pickled: arrays that span processes cannot be")
