from accelerate import Accelerator
from huggingface_hub import upload_folder

accelerator = Accelerator()
upload_folder(repo_id="me/model", folder_path="out")  # expect: AR102
