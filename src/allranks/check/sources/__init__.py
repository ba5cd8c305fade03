"""The files of a project: found, read, and as text, lines, cells and trees."""
