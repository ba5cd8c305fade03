from fairseq import distributed_utils
def write(rows):
    if distributed_utils.get_data_parallel_rank() != 0:
        return
    distributed_utils.all_gather_list(rows)  # expect: AR202
