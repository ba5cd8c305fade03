"""AR900: a file that cannot be read as Python."""

from __future__ import annotations

from allranks.check.rule import MetaRule


class UnreadableFile(MetaRule):
    """
    ## What it does
    Reports a file that was left out: it does not parse, or has another encoding than it declares.

    ## Why is this bad
    Nothing in that file was checked, and calls into it are unknown.

    ## What happens with N processes
    Python stops at the import, on every rank.

    ## Known problems
    Files that need a newer Python than the one that runs `allranks` are one remark, no error, as far as the line at
    which the parser stops shows that. Run `allranks` with the Python that runs the program.

    ## Use instead
    Repair the file, or exclude it in `[tool.allranks.check]`.
    """

    code, name, severity, row = "AR900", "unreadable-file", "error", "initialisation"
    cluster = "Nothing in this file was checked."
    advice = "Repair the file, or exclude it."
    bad = (
        """\
def main(:  # <-- found
    pass
""",
        """\
x = 1
y = '  # <-- found
""",
        """\
# coding: no-such-codec  # <-- found
""",
    )
    good = (
        """\
""",
        """\
# coding: latin-1
x = 1
""",
    )
