def wrap(f):
    def inner():
        return f()
    return inner
