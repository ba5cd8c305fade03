import torch
from accelerate import Accelerator
def main(model, optimizer, loader, args):
    accelerator = Accelerator(log_with='wandb')
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    if accelerator.is_main_process:
        accelerator.init_trackers('run')
    for step, batch in enumerate(loader):
        with accelerator.accumulate(model):
            loss = model(batch).mean()
            accelerator.backward(loss)
            if accelerator.sync_gradients:
                accelerator.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
        accelerator.log({'loss': accelerator.gather(loss).mean().item()})
        if step % args.every == 0:
            accelerator.wait_for_everyone()
            accelerator.save_state('out')
            if accelerator.is_main_process:
                accelerator.unwrap_model(model).save_pretrained('final')
    accelerator.end_training()
if __name__ == '__main__':
    main(make(), opt(), load(), parse())
