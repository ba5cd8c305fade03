class Notices:
    def __init__(self, world, signals=()):
        pass

    def arrived(self, calls):
        return None

    def raise_notice(self, kind, why):
        pass

    def close(self):
        pass
