def answers(accelerator, model, batch, tokenizer):
    found = model.generate(batch.ids, pad_token_id=tokenizer.pad_token_id, do_sample=False)
    return accelerator.gather_for_metrics((found, batch.numbers))  # expect: AR207


def padded_answers(accelerator, model, batch):
    found = model.generate(batch.ids, do_sample=False)
    found = accelerator.pad_across_processes(found, dim=1)
    return accelerator.gather(found)
