import torch

class A:
    def keep(self, x):
        open('x.txt', 'w')  # expect: AR102

class B:
    def keep(self, x):
        torch.save(x, 'x.pt')

def make(kind):
    return A() if kind == 'a' else B()

class C:
    def keep(self, x):
        open('y.txt', 'w')
