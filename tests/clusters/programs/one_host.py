"""Stand in for the launcher of one of several hosts: ``run --hosts H --host-rank R ... SCRIPT SECONDS CODE``.

It prints framed lines, ends with 143 on SIGTERM and at the end of its standard input, and leaves a file while it runs.
"""

import argparse
import os
import signal
import socket
import sys
import threading
import time
from pathlib import Path

p = argparse.ArgumentParser()
p.add_argument("run")
p.add_argument("--hosts")
p.add_argument("--host-rank", type=int)
p.add_argument("--coordinator")
p.add_argument("--end-on-stdin-close", action="store_true")
p.add_argument("-n", type=int)
p.add_argument("script")
p.add_argument("seconds", type=float)
p.add_argument("code", type=int)
a = p.parse_args()
host = socket.gethostname()
running = Path(f"running-{host}")


def end(*_: object) -> None:
    print(f"allranks: SIGTERM on {host}", flush=True)
    running.unlink()
    os._exit(143)


def watch() -> None:
    while os.read(0, 1):
        pass
    end()


signal.signal(signal.SIGTERM, end)
running.touch()
first = a.host_rank * a.n
name = a.coordinator.partition(":")[0]
print(f"[{first}-{first + a.n - 1}] {os.environ.get('TEXT')} {name} {a.hosts} {Path.cwd().name}", flush=True)
if a.end_on_stdin_close:
    threading.Thread(target=watch, daemon=True).start()
time.sleep(a.seconds)
print(f"({first}) done", file=sys.stderr, flush=True)
running.unlink()
sys.exit(a.code)
