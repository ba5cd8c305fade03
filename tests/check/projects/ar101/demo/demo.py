import torch
from train import options

def main():
    state = options()
    torch.save(state, 'shown.pt')  # low: AR101

if __name__ == '__main__':
    main()
