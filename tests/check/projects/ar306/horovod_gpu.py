import horovod.mxnet as hvd

hvd.init()
gpu = hvd.local_rank()
size = hvd.size()
