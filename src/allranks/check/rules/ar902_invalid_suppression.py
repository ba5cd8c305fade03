"""AR902: a comment that would suppress everything, or names a code that does not exist."""

from __future__ import annotations

from allranks.check.rule import MetaRule


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
        """\
x = 1  # allranks: ignore  # <-- found
""",
        """\
x = 1  # allranks: ignore[AR1]  # <-- found
# allranks: ignroe[AR101]  # <-- found
""",
    )
    good = (
        """\
x = 1  # noqa
""",
        """\
# allranks: all ranks come here
x = 1
""",
    )
