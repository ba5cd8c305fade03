import torch
from detectron2.evaluation import DatasetEvaluator
class Mine(DatasetEvaluator):
    def evaluate(self):
        torch.save({}, 'a.pt')  # expect: AR101
