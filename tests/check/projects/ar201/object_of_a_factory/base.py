from abc import ABC, abstractmethod

class Engine(ABC):
    @abstractmethod
    def write_all(self, path):
        """Write it."""

    def close_all(self):
        raise NotImplementedError
