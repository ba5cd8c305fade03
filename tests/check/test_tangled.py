"""Files where very many ways lead from name to name: a rule comes to an end, or says that it gave up."""

from __future__ import annotations

import ast

from allranks.check.engine import Settings, check
from allranks.check.sources.source import MOST_STEPS, File
from allranks.check.tree.dealt_loaders import dealt_at

# As torch's own collate function: it calls itself on every part of what it is given, in each of its loops.
COLLATE = "def collate(batch, kinds=None):\n" + "".join(
    f"    for elem in batch:\n        if elem is {kind}:\n            return [collate(one, kinds) for one in elem]\n"
    for kind in ("list", "tuple", "dict", "str", "int", "float", "bytes", "set")
)
# Each function is called by all the others, and what they pass on is called as numbers of devices are.
NAMES = [f"f{n}" for n in range(7)]
CALLS = "".join(f"    {name}(count or count)\n" for name in NAMES)
COUNTS = f"""
import jax
{"".join(f"def {name}(count):{chr(10)}{CALLS}    x = jnp.zeros((count, 8)){chr(10)}" for name in NAMES)}
train = jax.pmap(step)
y = train(x.reshape((count, -1)))
f0(jax.device_count())
"""


def test_what_calls_itself_on_everything_is_gone_through_once() -> None:
    file = File("collate.py", COLLATE, ast.parse(COLLATE))
    loops = [node.iter for node in ast.walk(file.tree) if isinstance(node, ast.For)]
    assert loops
    assert [dealt_at(loop, file) for loop in loops] == [None] * len(loops)
    assert file.steps.taken < 1_000


def test_a_rule_that_would_take_too_many_steps_gives_up_and_says_so() -> None:
    """The others have looked at the file nevertheless."""
    program = COUNTS + "import torch\ntorch.distributed.init_process_group()\ntorch.save({}, 'last.pt')\n"
    findings = check({"train.py": program.encode()}, Settings()).findings
    told = {finding.code: finding for finding in findings}
    assert told["AR903"].message == (
        f"AR608 did not read all of this file: it takes more than {MOST_STEPS:,} steps from name to name"
    )
    assert told["AR903"].severity == "info"
    assert "AR101" in told
