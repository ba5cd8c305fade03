"""Do all ranks hold the same thing?"""
