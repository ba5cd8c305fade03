"""AR902: a comment that would suppress everything, or names a code that does not exist."""

from __future__ import annotations

from allranks.check.rule import Example, MetaRule


class InvalidSuppression(MetaRule):
    """
    ## What it does
    Finds comments of allranks that are refused: without codes, with an unknown code, with a misspelt word.

    ## Why is this bad
    A comment that suppresses everything hides faults that nobody has seen yet. A misspelt one hides nothing, and its
    author believes that it does. Neither has an effect.

    ## What happens with N processes
    Nothing by itself.

    ## Known problems
    A bare `# noqa` belongs to other tools: it has no effect and is not reported.

    ## Use instead
    `# allranks: ignore[AR101] why this is right`, with the codes that you mean. Exclude whole families, and files, in
    `[tool.allranks.check]`: `ignore`, `per-file-ignores`.
    """

    code, name, severity, row = "AR902", "invalid-suppression", "warning", "gating"
    cluster = "It has no effect."
    advice = "Name the codes: `# allranks: ignore[AR101] why`."
    bad = (
        Example({"train.py": "x = 1  # allranks: ignore\n"}, at=(1,)),
        Example({"train.py": "x = 1  # allranks: ignore[AR1]\n# allranks: ignroe[AR101]\n"}, at=(1, 2)),
    )
    good = (
        Example({"train.py": "x = 1  # noqa\n"}),
        Example({"train.py": "# allranks: all ranks come here\nx = 1\n"}),
    )
