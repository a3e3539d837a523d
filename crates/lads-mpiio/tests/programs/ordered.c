/* Three processes whose servers share nothing: ordered NAME.
 *
 * They run on one host, so they have a shared pointer and atomic mode all the same.
 */
#include "check.h"
#include <string.h>

enum { ROUNDS = 2, WHOLE = ROUNDS * (1 + 2 + 3), RECORDS = 50, LENGTH = 7, BLOCK = 300000 };

static void meet(MPI_File file)
{
    OK(MPI_File_sync(file));
    MPI_Barrier(MPI_COMM_WORLD);
    OK(MPI_File_sync(file));
}

static void ordered(MPI_File file)
{
    MPI_Status status;
    const char expected[] = "ab.c..de.f..";
    char own[] = "...", back[WHOLE] = "";
    for (int round = 0; round < ROUNDS; round++) {
        own[0] = (char)('a' + rank + round * processes);
        OK(MPI_File_write_ordered(file, own, rank + 1, MPI_BYTE, &status));
    }
    meet(file);
    OK(MPI_File_read_at(file, 0, back, WHOLE, MPI_BYTE, &status));
    CHECK(memcmp(back, expected, WHOLE) == 0);
    MPI_Barrier(MPI_COMM_WORLD);
    OK(MPI_File_seek_shared(file, 1, MPI_SEEK_SET));
    OK(MPI_File_read_ordered(file, back, 1, MPI_BYTE, &status));
    CHECK(back[0] == expected[1 + rank]);
}

/* Records at the shared pointer: none is lost, torn, or over another. */
static void shared(MPI_File file)
{
    char record[LENGTH], back[LENGTH];
    int seen[64] = {0};
    MPI_Offset at;
    memset(record, 'A' + rank, LENGTH);
    MPI_Barrier(MPI_COMM_WORLD);
    OK(MPI_File_seek_shared(file, 0, MPI_SEEK_SET));
    for (int i = 0; i < RECORDS; i++)
        OK(MPI_File_write_shared(file, record, LENGTH, MPI_BYTE, MPI_STATUS_IGNORE));
    meet(file);
    OK(MPI_File_get_position_shared(file, &at));
    CHECK(at == (MPI_Offset)LENGTH * RECORDS * processes);
    for (int i = 0; i < RECORDS * processes; i++) {
        OK(MPI_File_read_at(file, (MPI_Offset)LENGTH * i, back, LENGTH, MPI_BYTE, MPI_STATUS_IGNORE));
        CHECK(memcmp(back, back + 1, LENGTH - 1) == 0);
        seen[(back[0] - 'A') & 63]++;
    }
    for (int i = 0; i < processes; i++)
        CHECK(seen[i] == RECORDS);
}

/* Each write fills the block with one number, and each read finds one number everywhere. */
static void atomic_mode(MPI_File file)
{
    static unsigned char own[BLOCK], back[BLOCK];
    int mixed = 0, flag = 0;
    OK(MPI_File_set_atomicity(file, 1));
    OK(MPI_File_get_atomicity(file, &flag));
    CHECK(flag == 1);
    memset(own, 1, sizeof own);
    if (rank == 0)
        OK(MPI_File_write_at(file, 0, own, BLOCK, MPI_BYTE, MPI_STATUS_IGNORE));
    MPI_Barrier(MPI_COMM_WORLD);
    for (int round = 0; round < 8; round++) {
        memset(own, 1 + rank + processes * round, sizeof own);
        OK(MPI_File_write_at(file, 0, own, BLOCK, MPI_BYTE, MPI_STATUS_IGNORE));
        OK(MPI_File_read_at(file, 0, back, BLOCK, MPI_BYTE, MPI_STATUS_IGNORE));
        mixed += memcmp(back, back + 1, sizeof back - 1) != 0;
    }
    CHECK(mixed == 0);
    OK(MPI_File_set_atomicity(file, 0));
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &processes);
    MPI_File file;
    MPI_Offset at;
    int amode = MPI_MODE_CREATE | MPI_MODE_RDWR;
    OK(MPI_File_open(MPI_COMM_WORLD, argv[1], amode, MPI_INFO_NULL, &file));
    ordered(file);
    shared(file);
    atomic_mode(file);
    OK(MPI_File_close(&file));
    OK(MPI_File_open(MPI_COMM_WORLD, argv[1], amode | MPI_MODE_APPEND, MPI_INFO_NULL, &file));
    OK(MPI_File_get_position_shared(file, &at));
    CHECK(at == BLOCK);
    OK(MPI_File_close(&file));
    int code = report("ordered");
    MPI_Finalize();
    return code;
}
