"""The table of known messages, what is found with it in logs, and what a running job's output gets below them."""

from __future__ import annotations

import io
import json
import re
from pathlib import Path

import pytest

from allranks.cli import explain as command
from allranks.launch.console import Console
from allranks.launch.explain import BURST, InlineExplainer, facts_text
from allranks.launch.merge import WINDOW
from allranks.messages.book import BOOK
from allranks.messages.known import KINDS, KnownMessage, MessageBook
from allranks.messages.page import generate_page

PAGE = Path(__file__).parents[2] / "docs" / "explain.md"
RENDEZVOUS = next(known for known in BOOK.known if known.name == "xla-rendezvous")
# The message of the project's fifth seed, as its author quoted it.
SEED = b"""loading data
[id=0] This thread has been waiting for `first call to collective operation 190; run_id=-851342065` for 20 seconds and \
may be stuck. Expected 2 threads to join the rendezvous, but not all of them arrived on time.
step 1
"""


@pytest.mark.parametrize("known", BOOK.known, ids=lambda known: known.name)
def test_a_message_is_found_by_each_of_its_texts_and_taken_for_no_other(known: KnownMessage) -> None:
    """The example is what was printed; its facts are read, and its words are fit to be shown."""
    assert BOOK.find_in_line(known.example.encode()) is known
    assert any(text in known.example for text in known.texts)
    for text in known.texts:
        assert BOOK.find_in_line(f"x {text} y".encode()) is known
    assert bool(facts_text(known, known.example.encode())) == bool(known.facts)
    assert known.kind in KINDS
    for words in (known.means, known.do):
        assert re.fullmatch(r"[A-Z`_]?\S.*[.):]", words, re.IGNORECASE), words
    assert not known.title.endswith(".")


def test_names_are_unique() -> None:
    assert len({known.name for known in BOOK.known}) == len(BOOK.known)


@pytest.mark.parametrize(
    "line",
    [
        "step 12 loss 2.34 error 0.1 timeout 30",
        "Epoch 1: 100%|#####| 10/10 [00:01<00:00, 9.98it/s, loss=2.3]",
        "memory: 12.3 GB, killed jobs: 0, watchdog ok, rendezvous ok",
        "NCCL INFO Channel 00/02 : 0 1",
        "[Gloo] Rank 0 is connected to 1 peer ranks. Expected number of connected peer ranks is : 1",
    ],
)
def test_ordinary_lines_are_no_messages(line: str) -> None:
    assert BOOK.find_in_line(line.encode()) is None


def test_two_messages_with_texts_in_common_are_told_apart() -> None:
    """The first one in the table is meant: a barrier called Shutdown is not just any barrier."""
    other = KnownMessage("a", "cause", "t", ("xy",), "M.", "D.", "s", "xy")
    book = MessageBook([RENDEZVOUS, other])
    assert book.find_in_line(b"xy and may be stuck") is RENDEZVOUS
    assert BOOK.find_in_line(b"Barrier timed out. Id: Shutdown::1::0.").name == "jax-shutdown-barrier"  # type: ignore[union-attr]
    assert BOOK.find_in_line(b"Barrier timed out. Id: restore::0.").name == "jax-barrier"  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("what", "name"),
    [("Read error [::1]:9: Connection reset by peer", "gloo-peer-gone"), ("Read timeout [::1]:9", "gloo-timeout")],
)
def test_a_reset_connection_is_no_timeout(what: str, name: str) -> None:
    """Gloo adds the same words to both."""
    line = f"[pair.cc:537] {what}. This is typically caused by a remote worker hanging or bugs in the application."
    assert BOOK.find_in_line(line.encode()).name == name  # type: ignore[union-attr]


def test_a_line_that_ends_with_a_colon_is_read_with_the_next_one() -> None:
    """JAX names the lost tasks there."""
    log = b"UNAVAILABLE: The following tasks are unhealthy (stopped sending heartbeats):\n3\nThe tasks have crashed."
    ((number, line, known),) = BOOK.find_in_output(log)
    assert (number, known.name) == (0, "jax-heartbeat")
    assert facts_text(known, line) == "tasks 3"


def shown(size: int) -> tuple[Console, io.BytesIO]:
    out = io.BytesIO()
    return Console(size, out=out, color=False, live=False), out


def test_a_known_message_is_explained_below_it_once_with_all_ranks_that_said_it() -> None:
    console, out = shown(4)
    for rank in (0, 2):
        console.feed(rank, "err", SEED, 1.0 + rank / 100)
    assert console.flush_due(1.05) == pytest.approx(1.0 + WINDOW)
    console.flush_due(1.0 + WINDOW)
    console.feed(1, "err", SEED, 2.0)
    console.close()
    text = out.getvalue().decode()
    head = next(line for line in text.splitlines() if line.startswith("allranks:"))
    assert head == f"allranks: what ranks 0, 2 said above: {RENDEZVOUS.title} [xla-rendezvous]"
    assert "said:    collective first call to collective operation 190; run_id=-851342065, seconds 20" in text
    assert "XLA_RENDEZVOUS_WAIT_SECONDS does not exist" in text.replace("\n             ", " ")
    assert "--xla_cpu_collective_call_terminate_timeout_seconds" in text
    assert text.count("allranks:") == 1
    assert text.count("(0, 2) [id=0]") == 1


def test_consequences_are_not_explained_in_place_nor_what_others_say_after_a_failure() -> None:
    """The first failure is what a person needs then, and the launcher names it."""
    console, out = shown(2)
    console.feed(0, "err", b"RuntimeError: Connection closed by peer [127.0.0.1]:1\n", 0.0)
    console.limit_peers(1)
    console.feed(0, "err", SEED, 0.1)
    console.close()
    assert b"allranks:" not in out.getvalue()


def test_a_flood_is_not_searched() -> None:
    """Beyond a megabyte at once output is passed on unread; the reader is back when the flood ends."""
    explain = InlineExplainer()
    flood = [b"x" * BURST]
    explain.feed(0, flood, 1.0)
    explain.feed(0, SEED.splitlines(), 1.0)
    assert explain.deadline is None
    explain.feed(0, SEED.splitlines(), 1.5)
    assert explain.deadline == 1.5 + WINDOW


LOG = b"".join(
    b"[rank%d]: RuntimeError: [pair.cc:553] Connection closed by peer [127.0.0.1]:42638. Typically\n" % rank
    for rank in (3, 1, 3)
)


def test_what_is_wrong_comes_before_what_follows_from_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Counted over all logs, with the place of the first and the ranks that said it; in JSON the same."""
    (tmp_path / "a.log").write_bytes(b"fine\n" * 5 + LOG)
    (tmp_path / "b.log").write_bytes(b"\n" + SEED + b"F1 parse.cc:234] Unknown flag in XLA_FLAGS: --xla_foo=1")
    logs = [str(tmp_path / "a.log"), str(tmp_path / "b.log")]
    assert command.main(logs) == 0
    text = capsys.readouterr().out
    heads = [line for line in text.splitlines() if line.endswith("]") and "[" in line and not line.startswith(" ")]
    assert [head.rsplit("[")[-1] for head in heads] == ["xla-unknown-flag]", "xla-rendezvous]", "gloo-peer-gone]"]
    assert heads[0].startswith(f"{logs[1]}:5: ")
    assert heads[2].startswith(f"{logs[0]}:6, 3 times, ranks 1, 3: ")
    assert command.main(["--json", *logs]) == 0
    documents = json.loads(capsys.readouterr().out)
    assert [one["name"] for one in documents] == ["xla-unknown-flag", "xla-rendezvous", "gloo-peer-gone"]
    assert documents[0]["facts"] == "flags --xla_foo=1"


def test_blocks_are_cut_at_lines(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch) -> None:
    """A log larger than what is read at once has right line numbers, and no message is lost at a seam."""
    (tmp_path / "log").write_bytes(SEED * 40)
    monkeypatch.setattr(command, "BLOCK", 97)
    assert command.main([str(tmp_path / "log")]) == 0
    assert capsys.readouterr().out.startswith("line 2, 40 times: ")


def test_a_log_without_known_messages_and_one_that_is_not_there(tmp_path: Path, capsys) -> None:
    (tmp_path / "log").write_text("step 1\n")
    assert command.main([str(tmp_path / "log")]) == 1
    assert command.main([str(tmp_path / "none")]) == 2
    assert "No such file" in capsys.readouterr().err


def test_the_page_is_drawn_from_the_table() -> None:
    """docs/explain.md: `python -m allranks.messages.page > docs/explain.md` draws it again."""
    assert PAGE.read_text() == generate_page()
