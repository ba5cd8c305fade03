class Stopper:
    def __init__(self):
        self.bad, self.stop, self.limit = 0, False, 5
    def __call__(self, loss):
        self.bad += 1
        self.stop = self.bad > self.limit
    def agreed(self):
        return bool(all_reduce_max(self.stop))
