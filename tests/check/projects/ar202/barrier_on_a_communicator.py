from mpi4py import MPI

class Search:
    def __init__(self, comm=MPI.COMM_WORLD):
        self.comm = comm

    def run(self):
        if self.comm is None:
            return
        self.comm.barrier()

world = MPI.COMM_WORLD
comm = world if world.rank in range(0, world.size, 2) else None
Search(comm).run()
