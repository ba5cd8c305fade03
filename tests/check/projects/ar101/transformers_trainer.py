import torch
from transformers import Trainer, TrainingArguments

def main(options):
    trainer = Trainer(model=None, args=TrainingArguments('out'))
    trainer.train()
    torch.save({}, 'last.pt')  # expect: AR101

if __name__ == '__main__':
    main(None)
