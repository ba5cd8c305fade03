"""What is kept of a file for the interpreter, and how files are one project."""
