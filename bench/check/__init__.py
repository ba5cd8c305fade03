"""The evaluation set of ``allranks check``: public code with known bugs and well-kept code, by commit, never copied."""
