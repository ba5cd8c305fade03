"""Files that all processes find alike: what the program does to files does not change what they look for."""

from __future__ import annotations

import textwrap

import pytest

from allranks.check.engine import Settings, check

ALIKE = {
    "those who found it write other files, those who did not leave": """
        def prepare(template, folder):
            if not template.exists():
                print("no such template")
                return
            folder.mkdir()
            (folder / "config").write_text(template.read_text())
            dist.barrier()
        """,
    "rank 0 has written it before all met": """
        def prepare(path, rows):
            if dist.get_rank() == 0:
                open(path, "w").write(rows)
            dist.barrier()
            if os.path.exists(path):
                dist.all_reduce(rows)
        """,
    "each has made the folder, and rank 0 writes what all have seen missing": """
        def render(folder, views):
            os.makedirs(folder, exist_ok=True)
            for at, view in enumerate(views):
                if os.path.exists(os.path.join(folder, f"{at}.png")):
                    continue
                dist.all_reduce(view)
                if dist.get_rank() == 0:
                    open(os.path.join(folder, f"{at}.png"), "w").write(view)
        """,
}
APART = {
    "those who did not find the folder make it": """
        def prepare(folder):
            if not os.path.exists(folder):
                os.makedirs(folder)
                dist.barrier()
        """,
    "those who did not find it make it": """
        def prepare(path, rows):
            if not os.path.exists(path):
                open(path, "w").write(rows)
                dist.barrier()
        """,
    "those who found it delete it": """
        def prepare(path, rows):
            if os.path.exists(path):
                os.remove(path)
                dist.barrier()
        """,
    "rank 0 writes it, and nobody waits": """
        def prepare(path, rows):
            if dist.get_rank() == 0:
                open(path, "w").write(rows)
            if os.path.exists(path):
                dist.all_reduce(rows)
        """,
}


def confidence(text: str) -> list[str]:
    start = "import os\nimport torch.distributed as dist\ndist.init_process_group('nccl')\n"
    source = (start + textwrap.dedent(text)).encode()
    settings = Settings(select=("AR203",), confidence="low")
    return [found.confidence for found in check({"a.py": source}, settings).findings]


@pytest.mark.parametrize("text", ALIKE.values(), ids=ALIKE)
def test_what_is_found_alike_is_no_certain_fault(text: str) -> None:
    """It has low confidence: another host may still see less."""
    assert confidence(text) == ["low"]


@pytest.mark.parametrize("text", APART.values(), ids=APART)
def test_what_a_late_process_finds_changed_is(text: str) -> None:
    """A process that looks a little later finds what another has done meanwhile."""
    assert confidence(text) == ["high"]
