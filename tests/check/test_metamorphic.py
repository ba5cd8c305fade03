"""The same program in other words: names, aliases, files, classes, decorators and dead code change no finding."""

from __future__ import annotations

import textwrap

from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from allranks.check.engine import Settings, check

IMPORTS = (
    ("import torch\nimport torch.distributed", "torch", "torch.distributed"),
    ("import torch\nimport torch.distributed as dist", "torch", "dist"),
    ("import torch as t\nfrom torch import distributed as d", "t", "d"),
    ("import torch\nfrom torch import distributed", "torch", "distributed"),
    (
        "try:\n    import torch\n    import torch.distributed as dist\nexcept ImportError:\n    torch = None",
        "torch",
        "dist",
    ),
)
LEAVES = {"save": "{torch}.save({state}, 'm.pt')", "meet": "{dist}.all_reduce({state})"}
# (leaf, how the rank guards it) -> what is found.
EXPECTED = {
    ("save", "nothing"): ["AR101"],
    ("save", "branch"): [],
    ("save", "return"): [],
    ("meet", "nothing"): [],
    ("meet", "branch"): ["AR201"],
    ("meet", "return"): ["AR202"],
}
NAMES = st.from_regex(r"[b-hj-z]{3}_[b-hj-z]{2,4}q", fullmatch=True)
GUARDS = ("{who} == 0", "0 == {who}", "not {who}", "{who} < 1", "{who} in (0,)", "not ({who} != 0)")
RANKS = ("{dist}.get_rank()", "int({os}.environ['RANK'])", "int({os}.environ.get('RANK', '0'))")
DEAD = (
    "{name} = [n * n for n in range(3)]",
    "if False:\n    {name} = 1",
    "def {name}(x):\n    return x",
    "class {name}:\n    y = 1",
    "'''{name}'''",
    "assert True, '{name}'",
)
DECORATORS = ("", "@{torch}.no_grad()\n", "@{wrap}\n", "@{functools}.wraps(print)\n")
WRAPPER = """\
def {wrap}(function):
    @{functools}.wraps(function)
    def {inner}(*args, **kwargs):
        return function(*args, **kwargs)
    return {inner}
"""


def indented(text: str, depth: int = 1) -> str:
    return textwrap.indent(text, "    " * depth)


def dead(name: str) -> st.SearchStrategy[list[str]]:
    """Draw statements that do nothing."""
    texts = st.lists(st.sampled_from(DEAD), max_size=3)
    return texts.map(lambda drawn: [text.format(name=f"{name}_{at}") for at, text in enumerate(drawn)])


@st.composite
def programs(draw: st.DrawFn) -> tuple[dict[str, str], list[str]]:
    """Draw a project that meets or saves once, and the codes that are right for it."""
    leaf, guard = draw(st.sampled_from(sorted(EXPECTED)))
    names = draw(st.lists(NAMES, min_size=9, max_size=9, unique=True))
    act, who, state, boss, home, wrap, inner, holder, main = names
    head, torch, dist = draw(st.sampled_from(IMPORTS))
    fill = {"torch": torch, "dist": dist, "state": state, "who": who, "wrap": wrap, "inner": inner}
    fill |= {"functools": "functools", "os": "os"}
    head = f"import functools\nimport os\n{head}\n"
    body = LEAVES[leaf].format(**fill)
    decorator = draw(st.sampled_from(DECORATORS)).format(**fill)
    helper = f"{decorator}def {act}({state}):\n{indented(body)}\n"
    if draw(st.booleans()):
        wrapped = f"class {holder}:\n{indented(helper.replace(f'({state})', f'(self, {state})', 1))}\n"
        helper, call = wrapped, f"{holder}().{act}(1)"
    else:
        call = f"{act}(1)"
    files = {}
    helper = WRAPPER.format(**fill) + "\n\n" + helper
    if draw(st.booleans()):
        files[f"{home}.py"] = f"{head}\n{helper}"
        top = f"from {home} import {call.partition('(')[0]}\n"
    else:
        top = f"\n{helper}"
    asks = draw(st.sampled_from(GUARDS)).format(who=who)
    rank = draw(st.sampled_from(RANKS)).format(**fill)
    predicate = f"def {boss}():\n    {who} = {rank}\n    return {asks}\n"
    if draw(st.booleans()):
        files[f"{home}2.py"] = f"{head}\n{predicate}"
        top += f"from {home}2 import {boss}\n"
    else:
        top += f"\n{predicate}"
    body = {
        "nothing": call,
        "branch": f"if {boss}():\n    {call}",
        "return": f"if not {boss}():\n    return\n{call}",
    }[guard]
    dead = [d.format(name=f"{main}_{n}") for n, d in enumerate(draw(st.lists(st.sampled_from(DEAD), max_size=3)))]
    body = "\n".join([f"{dist}.init_process_group('gloo')", *dead, body])
    above = "\n".join(
        d.format(name=f"{main}_top{n}") for n, d in enumerate(draw(st.lists(st.sampled_from(DEAD), max_size=2)))
    )
    files["train.py"] = f"{head}{top}\n{above}\n\ndef {main}():\n{indented(body)}\n\n{main}()\n"
    return files, EXPECTED[leaf, guard]


@settings(max_examples=250, deadline=None, phases=(Phase.explicit, Phase.reuse, Phase.generate))
@given(programs())
def test_a_program_in_other_words_is_judged_alike(drawn: tuple[dict[str, str], list[str]]) -> None:
    """Found where it was found, silent where it was silent."""
    files, expected = drawn
    outcome = check({path: text.encode() for path, text in files.items()}, Settings(select=("AR1", "AR2", "AR9")))
    assert [f.code for f in outcome.findings] == expected
