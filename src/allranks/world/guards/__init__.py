"""Guard a framework's collectives in code that only one rank runs."""
