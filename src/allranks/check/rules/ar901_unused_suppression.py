"""AR901: a comment that suppresses a finding which is not there."""

from __future__ import annotations

from allranks.check.rule import MetaRule


class UnusedSuppression(MetaRule):
    """
    ## What it does
    Finds `# allranks: ignore[...]`, `# allranks: file-ignore[...]` and `# noqa: AR...` with a code that is not found
    there. Codes of rules that did not run are not reported.

    ## Why is this bad
    The fault was fixed and the comment stayed. It will hide the next fault of that kind in this statement.

    ## What happens with N processes
    Nothing, until the statement is wrong again and no finding appears.

    ## Known problems
    If a part of a project is checked (single files, a folder, some entries), rules that follow calls from file to file
    may need the other part. Their suppressions count as unused only if the project is checked from its root.

    ## Use instead
    Remove the comment, or the code in it: `--fix` does.

    ## Fix safety
    Safe: a comment is removed.
    """

    code, name, severity, row = "AR901", "unused-suppression", "warning", "gating"
    cluster = ""
    advice = "Remove it: it would hide the next fault of that kind in this statement."
    bad = (
        """\
x = 1  # allranks: ignore[AR101] rank 0 only  # <-- found
""",
        """\
# allranks: file-ignore[AR201]  # <-- found
x = 1  # noqa: E501, AR102  # <-- found
""",
    )
    good = (
        """\
x = 1  # noqa: E501
""",
        """\
text = "# allranks: ignore[AR101]"
""",
    )
