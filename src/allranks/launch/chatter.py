"""Lines that libraries print on every rank though nothing has happened, and that no setting of theirs turns off.

They are left out of what a person is shown, and stand in the log files. A line is known here as a whole, down to its
numbers: one that tells of trouble must not pass for chatter.
"""

from __future__ import annotations

import re

# gloo, as jaxlib 0.10 has it: std::cout for every device, at the first collective (Context::printConnectivityInfo in
# transport/tcp/context.cc). Later versions of gloo obey GLOO_LOG_LEVEL. A rank that lacks peers is shown.
_GLOO = rb"\[Gloo\] Rank \d+ is connected to (\d+) peer ranks\. Expected number of connected peer ranks is : "
# The same from two devices of a rank at once: its pieces in some other order, on two lines.
_PIECE = rb"(?:\[Gloo\] Rank | is connected to | peer ranks\. |Expected number of connected peer ranks is : )"
_TORN = rb"(?!%b\d+$)\d*(?:%b\d*){2,}" % (_GLOO.replace(b"(", b"(?:"), _PIECE)
_CHATTER = re.compile(rb"%b\1|%b" % (_GLOO, _TORN))


def without_chatter(lines: list[bytes]) -> list[bytes]:
    """Return the lines that say something."""
    return [line for line in lines if not _CHATTER.fullmatch(line)]
