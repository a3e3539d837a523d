/* Counts checks on every process; all report together at the end. */
#ifndef CHECK_H
#define CHECK_H

#include <mpi.h>
#include <stdio.h>

static int check_count, failure_count, rank, processes;

/* A condition that must hold. The program goes on: collectives must be called by all. */
#define CHECK(condition)                                                                       \
    do {                                                                                       \
        check_count++;                                                                         \
        if (!(condition)) {                                                                    \
            failure_count++;                                                                   \
            fprintf(stderr, "rank %d: %s:%d: %s\n", rank, __FILE__, __LINE__, #condition);     \
        }                                                                                      \
    } while (0)

#define OK(call) CHECK((call) == MPI_SUCCESS)
#define FAILS(class, call) CHECK(class_of(call) == (class))

static inline int class_of(int code)
{
    int class;
    MPI_Error_class(code, &class);
    return class;
}

static inline int bytes_of(MPI_Status *status)
{
    int count = -2;
    MPI_Get_count(status, MPI_BYTE, &count);
    return count;
}

/* The result of the program: 1 if anything failed anywhere. */
static inline int report(const char *program)
{
    int own[2] = {check_count, failure_count}, all[2];
    MPI_Allreduce(own, all, 2, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    if (rank == 0)
        printf("%s: %d checks, %d failures\n", program, all[0], all[1]);
    return all[1] != 0;
}

#endif
