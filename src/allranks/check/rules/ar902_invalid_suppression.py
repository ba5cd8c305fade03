"""AR902: a comment that would suppress everything, or names a code that does not exist."""

from __future__ import annotations

from allranks.check.rule import Example, MetaRule


class InvalidSuppression(MetaRule):
    """
    ## What it does
    Finds comments of ours that are refused: without codes, with a code that no rule has, with a misspelt word.

    ## Why is this bad
    A comment that suppresses everything hides faults that nobody has seen yet; a misspelt one hides nothing, and its
    author believes that it does. Either way it is not obeyed.

    ## What happens with N processes
    Nothing by itself.

    ## Known problems
    A bare `# noqa` is addressed to other tools: it is neither obeyed nor reported.

    ## Use instead
    `# allranks: ignore[AR101] why this is right`, with the codes of what is meant. Whole families, and files, are left
    out in `[tool.allranks.check]`: `ignore`, `per-file-ignores`.
    """

    code, name, severity, row = "AR902", "invalid-suppression", "warning", "gating"
    cluster = "It is not obeyed."
    advice = "Name the codes: `# allranks: ignore[AR101] why`."
    bad = (
        Example({"train.py": "x = 1  # allranks: ignore\n"}, at=(1,)),
        Example({"train.py": "x = 1  # allranks: ignore[AR1]\n# allranks: ignroe[AR101]\n"}, at=(1, 2)),
    )
    good = (
        Example({"train.py": "x = 1  # noqa\n"}),
        Example({"train.py": "# allranks: all ranks come here\nx = 1\n"}),
    )
