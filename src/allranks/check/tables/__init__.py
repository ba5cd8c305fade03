"""What the engine knows about the APIs of others: data alone, one subject a file.

A pattern is a qualified name (``torch.distributed.all_reduce``, ``accelerate.Accelerator.wait_for_everyone``: a
method of an instance) or ``*.name`` (any receiver whose class the engine does not know; a class of the project never
matches). Write the name under which the API is documented: `names.py` says what else it is called
(``pytorch_lightning`` for ``lightning.pytorch``).
"""
