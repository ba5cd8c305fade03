import torch
from tools import register
@register('mine')
class Mine:
    def prepare(self):
        torch.save({}, 'a.pt')  # expect: AR101
def use(one):
    one.prepare()
