import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    LOG_DIR: str | None = None
    RANK: int
    LOCAL_RANK: int = 0

def __getattr__(name):
    return os.environ.get(name)
