import torch.distributed as dist, torchmetrics
def main():
    dist.init_process_group("nccl")
    metric = torchmetrics.MeanMetric().cuda()
    if dist.get_rank() == 0:
        print(metric.compute())  # expect: AR201
main()
