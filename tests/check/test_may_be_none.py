"""What may be None is otherwise what the annotation of the parameter says."""

from __future__ import annotations

from allranks.check.engine import Settings, check

SAVES = """\
import pickle
import jax

class Converter:
    def save_pretrained(self, model, path):
        {guard}
            pickle.dump(model, open(path, "wb"))

def keep(model, converter{noted}):
    converter.save_pretrained(model, "last")

def main(config):
    if config.export:
        converter = make(config)
    else:
        converter = None
    jax.distributed.initialize()
    keep(config.model, converter)

main(read())
"""


def _lines(guard: str, noted: str = ": Converter") -> list[int]:
    text = SAVES.format(guard=guard, noted=noted)
    return [f.place.line for f in check({"train.py": text.encode()}, Settings(select=("AR101",))).findings]


def test_what_may_be_none_is_of_the_class_that_the_annotation_names() -> None:
    assert _lines("if jax.process_index() == 0:") == []
    assert _lines("if self.on:") == [7]
    assert _lines("if self.on:", noted="") == [10]
