from base import Base

class Run(Base):
    def go(self):
        if self.boss:
            self.mean(1)  # expect: AR201

Run().go()
