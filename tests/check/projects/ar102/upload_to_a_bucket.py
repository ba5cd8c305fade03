import torch.distributed as dist

dist.init_process_group('nccl')
import boto3

boto3.client('s3').upload_file('a', 'bucket', 'a')  # expect: AR102
