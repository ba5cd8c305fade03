import torch
import tensorflow as tf
tf.distribute.MultiWorkerMirroredStrategy()
torch.save({}, 'a.pt')  # expect: AR101
