/* The memory that a call reads into or writes from, as pieces. */
#include "shim.h"
#include <limits.h>

void shim_pieces_add(struct shim_pieces *pieces, char *at, uint64_t length)
{
    if (length == 0 || pieces->is_out_of_memory)
        return;
    rfs_piece *last = pieces->count ? &pieces->list[pieces->count - 1] : NULL;
    if (last && (char *)last->bytes + last->length == at) {
        last->length += length;
        return;
    }
    if (pieces->count == pieces->capacity) {
        size_t capacity = 2 * pieces->capacity + 4;
        rfs_piece *grown = realloc(pieces->list, capacity * sizeof *grown);
        if (!grown) {
            pieces->is_out_of_memory = 1;
            return;
        }
        pieces->list = grown;
        pieces->capacity = capacity;
    }
    pieces->list[pieces->count++] = (rfs_piece){at, length};
}

/* Copies between the program's memory and the packed one. One element at a time: the sizes of
 * MPI_Pack are ints, those of all elements together need not be. */
static int repack(struct shim_pieces *pieces, char *memory, MPI_Count count, MPI_Datatype datatype,
                  int is_packing)
{
    MPI_Count size, begin, extent;
    PMPI_Type_size_x(datatype, &size);
    PMPI_Type_get_extent_x(datatype, &begin, &extent);
    if (size > INT_MAX)
        return MPI_ERR_UNSUPPORTED_OPERATION;
    for (MPI_Count i = 0; i < count; i++) {
        unsigned char *packed = pieces->packed + i * size;
        char *element = memory + i * extent;
        int at = 0;
        int code = is_packing
                       ? PMPI_Pack(element, 1, datatype, packed, (int)size, &at, MPI_COMM_SELF)
                       : PMPI_Unpack(packed, (int)size, &at, element, 1, datatype, MPI_COMM_SELF);
        if (code != MPI_SUCCESS)
            return MPI_ERR_TYPE;
    }
    return MPI_SUCCESS;
}

/* For a datatype that is not understood. It is packed for a read too: bytes behind the end of the
 * file must stay as they are when all is unpacked. */
static int packed(void *memory, MPI_Count count, MPI_Datatype datatype, struct shim_pieces *pieces)
{
    MPI_Count size;
    PMPI_Type_size_x(datatype, &size);
    pieces->count = 0;
    pieces->packed = malloc((size_t)(count * size) + 1);
    if (!pieces->packed)
        return MPI_ERR_NO_MEM;
    shim_pieces_add(pieces, (char *)pieces->packed, (uint64_t)(count * size));
    return pieces->is_out_of_memory ? MPI_ERR_NO_MEM : repack(pieces, memory, count, datatype, 1);
}

int shim_pieces_of(void *memory, MPI_Count count, MPI_Datatype datatype,
                   struct shim_pieces *pieces)
{
    struct shim_type *type = shim_type_of(datatype);
    int is_known = type && shim_type_pieces(type, count, memory, pieces);
    shim_type_free(type);
    if (pieces->is_out_of_memory)
        return MPI_ERR_NO_MEM;
    return is_known ? MPI_SUCCESS : packed(memory, count, datatype, pieces);
}

int shim_pieces_unpack(struct shim_pieces *pieces, void *memory, MPI_Count count,
                       MPI_Datatype datatype)
{
    return pieces->packed ? repack(pieces, memory, count, datatype, 0) : MPI_SUCCESS;
}

void shim_pieces_free(struct shim_pieces *pieces)
{
    free(pieces->list);
    free(pieces->packed);
}
