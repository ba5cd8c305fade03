"""A rank that prints line by line, as training code does. argv: how many lines, and `same` or `different` ones."""

import os
import sys
import time

from told import tell

tell(begin=time.monotonic())
who = "all ranks" if sys.argv[2] == "same" else f"rank {os.environ['RANK']}"
for step in range(int(sys.argv[1])):
    print(f"step {step:07} loss 2.345678 tokens/s 123456 grad norm 0.9876 on {who}")
