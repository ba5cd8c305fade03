import torch
from accelerate import Accelerator
from logs import start_logs

def main(net):
    accelerator = Accelerator(mixed_precision="bf16")
    net = accelerator.prepare(net)
    accelerator.unwrap_model(net)
    torch.save(net.state_dict(), "last.pt")  # expect: AR101

if __name__ == "__main__":
    main(torch.nn.Linear(2, 2))
