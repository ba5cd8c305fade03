"""What each role of a program calls, in order; and where two roles differ."""
