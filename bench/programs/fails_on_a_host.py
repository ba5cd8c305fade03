"""A rank without a framework. Rank VICTIM fails in the way WHAT and writes when to FILE; the others wait."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from pathlib import Path

victim, what, file = sys.argv[1:4]
if os.environ["RANK"] == victim:
    time.sleep(0.5)  # the others start
    Path(file).write_text(str(time.time()))
    if what == "raise":
        raise ValueError("bad row")
    if what == "exit":
        os._exit(7)
    os.kill(os.getpid(), signal.SIGKILL)
threading.Event().wait()
