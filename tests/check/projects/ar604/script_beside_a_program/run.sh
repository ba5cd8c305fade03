export NCCL_DEBGU=INFO  # expect: AR604
export NCCL_IB_TIMEOUTT=4  # allranks: ignore[AR604] as meant
torchrun --nproc-per-node 2 train.py
