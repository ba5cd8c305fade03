"""What rules ask about the tree of one file."""
