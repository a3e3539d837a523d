/* Three processes whose servers share nothing: ordered NAME.
 *
 * Collective calls have a shared pointer all the same. Calls of one process have none, and there is
 * no atomic mode; both say so.
 */
#include "check.h"
#include <string.h>

enum { ROUNDS = 2, WHOLE = ROUNDS * (1 + 2 + 3) };

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &processes);
    MPI_File file;
    MPI_Status status;
    MPI_Offset offset;
    const char expected[] = "ab.c..de.f..";
    char own[] = "...", back[WHOLE] = "";
    OK(MPI_File_open(MPI_COMM_WORLD, argv[1], MPI_MODE_CREATE | MPI_MODE_RDWR, MPI_INFO_NULL, &file));
    for (int round = 0; round < ROUNDS; round++) {
        own[0] = (char)('a' + rank + round * processes);
        OK(MPI_File_write_ordered(file, own, rank + 1, MPI_BYTE, &status));
    }
    OK(MPI_File_sync(file));
    MPI_Barrier(MPI_COMM_WORLD);
    OK(MPI_File_read_at(file, 0, back, WHOLE, MPI_BYTE, &status));
    CHECK(memcmp(back, expected, WHOLE) == 0);
    OK(MPI_File_seek_shared(file, 1, MPI_SEEK_SET));
    OK(MPI_File_read_ordered(file, back, 1, MPI_BYTE, &status));
    CHECK(back[0] == expected[1 + rank]);
    if (rank > 0)
        FAILS(MPI_ERR_UNSUPPORTED_OPERATION, MPI_File_get_position_shared(file, &offset));
    FAILS(MPI_ERR_UNSUPPORTED_OPERATION, MPI_File_set_atomicity(file, 1));
    OK(MPI_File_set_atomicity(file, 0));
    OK(MPI_File_close(&file));
    int code = report("ordered");
    MPI_Finalize();
    return code;
}
