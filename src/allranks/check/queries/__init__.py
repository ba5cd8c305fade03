"""The questions that rules ask of a project that was run."""
