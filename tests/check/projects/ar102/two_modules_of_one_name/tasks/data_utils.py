def keep():
    pass
