"""mpi4py on a file: python.py NAME. Fails if anything is not as it should be."""
import sys
from array import array

from mpi4py import MPI

COUNT = 1000
world = MPI.COMM_WORLD
rank, processes = world.rank, world.size
name = sys.argv[1]


def values_of(process):
    return array("i", range(process * COUNT, (process + 1) * COUNT))


file = MPI.File.Open(world, name, MPI.MODE_CREATE | MPI.MODE_RDWR)
file.Set_size(0)
# Blocks of ten of each process in turn.
filetype = MPI.INT.Create_vector(COUNT // 10, 10, 10 * processes)
filetype.Commit()
file.Set_view(4 * 10 * rank, MPI.INT, filetype)
status = MPI.Status()
file.Write_all(values_of(rank), status)
assert status.Get_count(MPI.INT) == COUNT
file.Sync()
world.Barrier()
file.Sync()

# What the next process wrote, without its view.
other = (rank + 1) % processes
file.Set_view(0, MPI.INT, MPI.INT)
assert file.Get_size() == 4 * COUNT * processes
back = array("i", bytes(4 * 10))
for block in range(COUNT // 10):
    file.Read_at((block * processes + other) * 10, back)
    assert back == values_of(other)[10 * block : 10 * block + 10]

# Behind it: requests, the shared pointer, and a split collective.
requests = [file.Iwrite_at(COUNT * (processes + rank), values_of(rank))]
MPI.Request.Waitall(requests)
file.Seek_shared(2 * COUNT * processes)
file.Write_ordered(values_of(rank))
file.Write_at_all_begin(COUNT * (3 * processes + rank), values_of(rank))
file.Write_at_all_end(values_of(rank))
file.Close()

file = MPI.File.Open(world, name, MPI.MODE_RDONLY)
everything = array("i", bytes(4 * 3 * COUNT * processes))
file.Read_at_all(4 * COUNT * processes, everything)
for part in range(3):
    for process in range(processes):
        start = COUNT * (processes * part + process)
        assert everything[start : start + COUNT] == values_of(process), (part, process)
try:
    file.Write_at(0, values_of(rank))
    raise AssertionError("a file that is only read was written")
except MPI.Exception as error:
    assert error.Get_error_class() == MPI.ERR_READ_ONLY
file.Close()
if rank == 0:
    print("python: done")
