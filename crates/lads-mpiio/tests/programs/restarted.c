/* Processes write in turn while their server is killed and started again: restarted NAME ENOUGH.
 *
 * In each round one process writes bytes that overlap with those of earlier rounds, and sends a message. The others
 * read what they must find. Sometimes a file is made, cut, synced, locked or closed meanwhile. The program ends some
 * rounds after the file ENOUGH exists.
 */
#include "check.h"
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { LIMIT = 1 << 20, MOST = 200000, LAST_ROUNDS = 20 };

static unsigned char model[LIMIT], bytes[LIMIT];
static unsigned state = 1;

/* The same numbers on all processes. */
static unsigned below(unsigned end)
{
    state = state * 1103515245 + 12345;
    return (state >> 8) % end;
}

static void use_another_file(const char *name, int round)
{
    char other[4096];
    MPI_File file;
    int found = -1;
    snprintf(other, sizeof other, "%s.%d", name, rank);
    OK(MPI_File_open(MPI_COMM_SELF, other, MPI_MODE_CREATE | MPI_MODE_RDWR | MPI_MODE_DELETE_ON_CLOSE, MPI_INFO_NULL,
                     &file));
    OK(MPI_File_set_size(file, round));
    OK(MPI_File_write_at(file, round, &round, sizeof round, MPI_BYTE, MPI_STATUS_IGNORE));
    OK(MPI_File_read_at(file, round, &found, sizeof found, MPI_BYTE, MPI_STATUS_IGNORE));
    CHECK(found == round);
    OK(MPI_File_close(&file));
}

int main(int argc, char **argv)
{
    MPI_File file;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &processes);
    OK(MPI_File_open(MPI_COMM_WORLD, argv[1], MPI_MODE_CREATE | MPI_MODE_RDWR, MPI_INFO_NULL, &file));
    OK(MPI_File_set_size(file, LIMIT));
    for (int round = 1, left = LAST_ROUNDS; left > 0; round++) {
        int begin = below(LIMIT - 1), length = 1 + below(MOST), chosen = below(12);
        length = length < LIMIT - begin ? length : LIMIT - begin;
        memset(model + begin, round % 251, length);
        if (rank == round % processes)
            OK(MPI_File_write_at(file, begin, model + begin, length, MPI_BYTE, MPI_STATUS_IGNORE));
        if (chosen == 0)
            OK(MPI_File_sync(file));
        if (chosen == 1)
            OK(MPI_File_set_atomicity(file, round % 2));
        if (chosen == 2)
            use_another_file(argv[1], round);
        MPI_Barrier(MPI_COMM_WORLD);
        begin = below(LIMIT - 1), length = 1 + below(MOST);
        length = length < LIMIT - begin ? length : LIMIT - begin;
        OK(MPI_File_read_at(file, begin, bytes, length, MPI_BYTE, MPI_STATUS_IGNORE));
        CHECK(memcmp(bytes, model + begin, length) == 0);
        int is_enough = access(argv[2], F_OK) == 0;
        /* Nobody writes before all have read. */
        MPI_Allreduce(MPI_IN_PLACE, &is_enough, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
        left -= is_enough;
    }
    OK(MPI_File_close(&file));
    int result = report(argv[0]);
    MPI_Finalize();
    return result;
}
