import random
import numpy as np
from mpi4py import MPI

def main(comm):
    drawn = random.random() * np.ones(1)
    comm.Bcast(drawn)
    if drawn > 0.5:
        comm.Barrier()

main(MPI.COMM_WORLD)
