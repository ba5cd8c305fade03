import torch
from fitting import fit_model

def main():
    torch.save({}, 'first.pt')  # expect: AR101
    fit_model(None)

if __name__ == '__main__':
    main()
