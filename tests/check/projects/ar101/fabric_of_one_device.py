import lightning as L
import torch

def main(nodes):
    fabric = L.Fabric(accelerator="auto", devices=1)
    fabric.launch()
    model = fabric.setup(torch.nn.Linear(2, 2))
    if fabric.is_global_zero:
        print(model)
    fabric.barrier()
    torch.save({}, "last.pt")  # false: AR101

if __name__ == "__main__":
    main(2)
