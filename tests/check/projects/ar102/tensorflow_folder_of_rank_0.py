import torch.distributed as dist

dist.init_process_group('nccl')
import tensorflow as tf
tf.train.MonitoredTrainingSession(checkpoint_dir='out' if dist.get_rank() == 0 else None)
