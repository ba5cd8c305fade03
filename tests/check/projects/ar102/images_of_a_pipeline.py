import os
from accelerate import Accelerator
accelerator = Accelerator()
def validate(pipe, out, step):
    for at, image in enumerate(pipe("a cat").images):
        image.save(os.path.join(out, f"{step}_{at}.png"))  # expect: AR102
        image.save(os.path.join(out, f"{step}_{at}_{accelerator.process_index}.png"))
        image.save(out)
validate(pipe, "samples", 1)
