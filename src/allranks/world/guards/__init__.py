"""What watches a framework's collectives while one rank runs alone."""
