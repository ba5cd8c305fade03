"""A training loop that leaves when it is told to: ``leaving.py FRAMEWORK FOLDER WHAT``, on three real ranks.

Every rank leaves the call at which it left in FOLDER/<rank>. WHAT is done to them once they run, by a thread of rank 0:
``one`` or ``all`` get SIGTERM, ``stopped``: rank 2 is stopped first, ``fails``: rank 1 raises, ``nothing``.
"""

import os
import random
import signal
import sys
import threading
import time
from pathlib import Path

import allranks
from allranks.errors import BarrierTimeout
from allranks.world import sigterm
from allranks.world.notices import Notices

framework, folder, what = sys.argv[1], Path(sys.argv[2]), sys.argv[3]
world = allranks.init(framework, timeout=60)
notices = Notices(world, patience=2.0 if what == "stopped" else 30.0)


def told_to_leave():
    os.write(2, b"told to leave\n")
    notices.raise_notice("leave", f"SIGTERM on rank {world.rank}")


sigterm.handle_with(told_to_leave, who="the test")
pids = world.all_gather(os.getpid())


def disturb():
    time.sleep(random.random())
    if what == "stopped":
        os.kill(pids[2], signal.SIGSTOP)
    for pid in {"one": [random.choice(pids)], "all": pids, "stopped": [pids[1]]}.get(what, []):
        os.kill(pid, signal.SIGTERM)


if world.is_main:
    threading.Thread(target=disturb).start()
(folder / f"{world.rank}.runs").touch()
for call in range(1, 100_000):
    try:
        notice = notices.arrived(call)
    except BarrierTimeout as error:
        (folder / str(world.rank)).write_text(f"{error}")
        os.kill(pids[2], signal.SIGCONT)
        break
    if notice is not None:
        (folder / str(world.rank)).write_text(f"{call} {notice.why}")
        sigterm.leave_after_sigterm(world, f"saved step {call} and left", because=notice.why)
    if what == "fails" and call == 20 and world.rank == 1:
        raise ValueError("bad row")
    time.sleep(random.random() / 100)
    if what != "stopped":
        world.barrier()
