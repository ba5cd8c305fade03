from transformers import Trainer, TrainingArguments
def main():
    args = TrainingArguments('out')
    trainer = Trainer(model=make(), args=args)
    trainer.train()
    trainer.save_model()
    if trainer.is_world_process_zero():
        open('done.txt', 'w').write('a')
main()
