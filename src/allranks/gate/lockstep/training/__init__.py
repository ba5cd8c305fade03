"""What a program does between its calls."""
