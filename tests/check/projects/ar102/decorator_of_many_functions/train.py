from cli import wrap
import torch.distributed as dist

@wrap
def other_0():
    pass

other_0()

@wrap
def other_1():
    pass

other_1()

@wrap
def other_2():
    pass

other_2()

@wrap
def other_3():
    pass

other_3()

@wrap
def main():
    dist.init_process_group('nccl')
    open('x.txt', 'w')  # expect: AR102

main()
