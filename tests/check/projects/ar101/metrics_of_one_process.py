import orbax.checkpoint as ocp
import torch
import torchmetrics

metric = torchmetrics.MeanMetric()
metric.compute()
ocp.StandardCheckpointer().save("x", {})
torch.save({}, "a.pt")
