"""The program's own clock and listings, and nobody else's."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

PROGRAM = """
import datetime, os, pickle, time
from pathlib import Path

from allranks.rehearse.probe.perturb import perturb

before, measured = time.time(), time.monotonic()
real = datetime.datetime
names = sorted(os.listdir("."))
perturb(int(os.sys.argv[1]), int(os.sys.argv[2]))
import logging
from datetime import datetime as later

assert later is not real and isinstance(real.now(), later) and isinstance(later.now(), later)
assert later(2020, 1, 2).year == 2020 and real.now() - later.fromtimestamp(before) is not None
assert type(later(2020, 1, 2)) is real and issubclass(real, later)
assert pickle.loads(pickle.dumps(later(2020, 1, 2))) == real(2020, 1, 2)

class Special(later):
    pass

assert type(Special(2020, 1, 2)) is Special and not isinstance(real.now(), Special)
compiled = {}  # a compiled module has no frame of its own while it is imported: its caller is importlib
exec(compile("import datetime; found = datetime.datetime", "<frozen importlib._bootstrap>", "exec"), compiled)
assert compiled["found"] is real
shift = time.time() - before
assert 0.5 < abs(shift) <= 121, shift
assert abs(time.mktime(time.localtime()) - time.time()) < 2
assert abs(later.now().timestamp() - time.time()) < 1
assert abs(later.utcnow().replace(tzinfo=datetime.UTC).timestamp() - time.time()) < 1
assert time.strftime("%Y", time.gmtime(0)) == "1970"
assert abs(time.monotonic() - measured) < 30
record = logging.makeLogRecord({})
assert abs(record.created - before) < 30, "the standard library reads the machine's clock"
assert sorted(os.listdir(".")) == names == sorted(path.name for path in Path(".").iterdir())
with os.scandir(".") as entries:
    assert sorted(entry.name for entry in entries) == names
print(os.listdir("."), round(shift, 1))
"""


def test_clock_and_listings_are_those_of_the_seed_and_the_rank(tmp_path: Path) -> None:
    folder, script = tmp_path / "folder", tmp_path / "program.py"
    folder.mkdir()
    for name in "abcdefghij":
        (folder / name).touch()
    script.write_text(PROGRAM)

    def run(seed: int, rank: int) -> str:
        command = [sys.executable, str(script), str(seed), str(rank)]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout.split("]")[0]

    assert run(1, 0) == run(1, 0)
    assert len({run(1, 0), run(1, 1), run(2, 0)}) == 3
