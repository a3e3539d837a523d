/* What the processes of a file tell each other. An error of the MPI in doing so is an error of the
 * call: if a process has died and the program goes on, the others must not believe that all is
 * well.
 */
#include "shim.h"
#include <limits.h>
#include <stdio.h>

/* The class of what a function of the MPI returned, or else this class. */
static int class_or(int code, int class)
{
    if (code != MPI_SUCCESS)
        PMPI_Error_class(code, &class);
    return class;
}

int shim_agree(MPI_Comm comm, int class)
{
    int code = PMPI_Allreduce(MPI_IN_PLACE, &class, 1, MPI_INT, MPI_MAX, comm);
    return class_or(code, class);
}

int shim_told(MPI_Comm comm, int class)
{
    int code = PMPI_Bcast(&class, 1, MPI_INT, 0, comm);
    return class_or(code, class);
}

int shim_agree_same(MPI_Comm comm, int class, const int64_t *numbers, int count)
{
    /* The greatest of each number and of its complement, by which the least is known. */
    int64_t bounds[1 + 2 * 4] = {class};
    for (int i = 0; i < count; i++) {
        bounds[1 + 2 * i] = numbers[i];
        bounds[2 + 2 * i] = ~numbers[i];
    }
    int code = PMPI_Allreduce(MPI_IN_PLACE, bounds, 1 + 2 * count, MPI_INT64_T, MPI_MAX, comm);
    class = class_or(code, (int)bounds[0]);
    for (int i = 0; i < count && class == MPI_SUCCESS; i++)
        if (bounds[1 + 2 * i] != ~bounds[2 + 2 * i])
            class = MPI_ERR_NOT_SAME;
    return class;
}

int shim_same(MPI_Comm comm, const int64_t *numbers, int count)
{
    return shim_agree_same(comm, MPI_SUCCESS, numbers, count);
}

int shim_agree_text(MPI_Comm comm, int own, const char *own_text, char text[MPI_MAX_ERROR_STRING])
{
    int class = own, rank;
    text[0] = 0;
    int code = PMPI_Allreduce(MPI_IN_PLACE, &class, 1, MPI_INT, MPI_MAX, comm);
    if (code != MPI_SUCCESS || class == MPI_SUCCESS)
        return class_or(code, class);
    PMPI_Comm_rank(comm, &rank);
    int has_text = own == class && own_text && *own_text;
    int first = has_text ? rank : INT_MAX;
    code = PMPI_Allreduce(MPI_IN_PLACE, &first, 1, MPI_INT, MPI_MIN, comm);
    if (code != MPI_SUCCESS || first == INT_MAX)
        return class;
    if (first == rank)
        snprintf(text, MPI_MAX_ERROR_STRING, "%s", own_text);
    PMPI_Bcast(text, MPI_MAX_ERROR_STRING, MPI_CHAR, first, comm);
    return class;
}
