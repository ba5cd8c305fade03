import os
from registry import DATASETS

class Base:
    def __init__(self, root):
        self.root = root
        self.load()

@DATASETS.register_module()
class Small(Base):
    def load(self):
        if not os.path.exists(self.root):
            os.makedirs(self.root)  # expect: AR108
