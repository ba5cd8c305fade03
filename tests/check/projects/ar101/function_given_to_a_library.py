import torch
import torch.distributed as dist
dist.init_process_group('nccl')
def main():
    def ready(profile):
        torch.save({}, 'a.pt')  # expect: AR101
    torch.profiler.profile(on_trace_ready=ready)
main()
