import os
from accelerate import Accelerator

class Stored:
    def filter(self, names):
        for name in names:
            os.remove(name)  # expect: AR109

class Experiment:
    def start(self):
        self.accelerator = Accelerator()
        self.make_runs()

    def make_runs(self):
        self.runs = Stored()

    def learn(self):
        self.runs.filter(["a"])

experiment = Experiment()
experiment.start()
experiment.learn()
