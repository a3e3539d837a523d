/* What a datatype of MPI is made of: taken apart once by MPI_Type_get_envelope and
 * MPI_Type_get_contents. layout.c writes it as it travels, or lays it out in memory.
 */
#include "datatype.h"

/* The arguments by which a datatype was made. A type made by a large-count constructor has its
 * counts and places in an array of their own, in the same order: `number` and `place` hide that. */
struct contents {
    int combiner;
    MPI_Count integer_count, address_count, large_count, datatype_count;
    int *integers;
    MPI_Aint *addresses;
    MPI_Count *large;
    MPI_Datatype *datatypes;
    size_t integer_at, address_at, large_at;
};

static int64_t integer(struct contents *from)
{
    return from->integers[from->integer_at++];
}

static int64_t number(struct contents *from)
{
    return from->large_count ? (int64_t)from->large[from->large_at++] : integer(from);
}

static int64_t place(struct contents *from)
{
    return from->large_count ? (int64_t)from->large[from->large_at++]
                             : (int64_t)from->addresses[from->address_at++];
}

static int envelope(MPI_Datatype datatype, struct contents *to)
{
#if SHIM_HAS_LARGE_COUNTS
    return PMPI_Type_get_envelope_c(datatype, &to->integer_count, &to->address_count,
                                    &to->large_count, &to->datatype_count, &to->combiner);
#else
    int integers, addresses, datatypes;
    int code = PMPI_Type_get_envelope(datatype, &integers, &addresses, &datatypes, &to->combiner);
    to->integer_count = integers;
    to->address_count = addresses;
    to->datatype_count = datatypes;
    to->large_count = 0;
    return code;
#endif
}

static int contents(MPI_Datatype datatype, struct contents *to)
{
    to->integers = calloc((size_t)to->integer_count + 1, sizeof *to->integers);
    to->addresses = calloc((size_t)to->address_count + 1, sizeof *to->addresses);
    to->large = calloc((size_t)to->large_count + 1, sizeof *to->large);
    to->datatypes = calloc((size_t)to->datatype_count + 1, sizeof *to->datatypes);
    if (!to->integers || !to->addresses || !to->large || !to->datatypes) {
        to->datatype_count = 0;
        return MPI_ERR_NO_MEM;
    }
#if SHIM_HAS_LARGE_COUNTS
    int code = PMPI_Type_get_contents_c(datatype, to->integer_count, to->address_count,
                                        to->large_count, to->datatype_count, to->integers,
                                        to->addresses, to->large, to->datatypes);
#else
    int code = PMPI_Type_get_contents(datatype, (int)to->integer_count, (int)to->address_count,
                                      (int)to->datatype_count, to->integers, to->addresses,
                                      to->datatypes);
#endif
    if (code != MPI_SUCCESS)
        to->datatype_count = 0;
    return code;
}

/* MPI_Type_get_contents gives a reference to each derived datatype; the others must not be freed. */
static void contents_free(struct contents *from)
{
    for (MPI_Count i = 0; i < from->datatype_count; i++) {
        struct contents inner = {0};
        if (envelope(from->datatypes[i], &inner) != MPI_SUCCESS)
            continue;
        switch (inner.combiner) {
        case MPI_COMBINER_NAMED:
        case MPI_COMBINER_F90_REAL:
        case MPI_COMBINER_F90_COMPLEX:
        case MPI_COMBINER_F90_INTEGER:
            break;
        default:
            PMPI_Type_free(&from->datatypes[i]);
        }
    }
    free(from->integers);
    free(from->addresses);
    free(from->large);
    free(from->datatypes);
}

static struct shim_type *bytes(MPI_Count size)
{
    struct shim_type *type = calloc(1, sizeof *type);
    if (type) {
        type->size = type->extent = size;
        type->is_run = 1;
    }
    return type;
}

/* Whether there is memory for the parts of an indexed type or a struct. */
static int has_parts(struct shim_type *type, enum shape shape, int64_t count)
{
    type->shape = shape;
    type->parts = calloc((size_t)count + 1, sizeof *type->parts);
    type->part_count = type->parts ? (size_t)count : 0;
    return type->parts != NULL;
}

/* A value and an integer behind it, as in a C struct (MPI_DOUBLE_INT): there may be a hole. */
static int pair(struct shim_type *type, MPI_Count value, MPI_Count index)
{
    if (!has_parts(type, STRUCT, 2))
        return 0;
    MPI_Count at = (value + index - 1) / index * index;
    type->parts[0] = (struct part){1, 0, bytes(value)};
    type->parts[1] = (struct part){1, at, bytes(index)};
    return type->parts[0].of && type->parts[1].of;
}

static int named(struct shim_type *type)
{
    type->is_run = type->size == type->extent || type->size == 0;
    return type->is_run || pair(type, type->size - (MPI_Count)sizeof(int), sizeof(int));
}

#if SHIM_HAS_VALUE_INDEX
static int value_index(struct shim_type *type, struct contents *from)
{
    MPI_Count value, index;
    PMPI_Type_size_x(from->datatypes[0], &value);
    PMPI_Type_size_x(from->datatypes[1], &index);
    return pair(type, value, index);
}
#endif

static int vector(struct shim_type *type, struct contents *from)
{
    int is_in_bytes = from->combiner == MPI_COMBINER_HVECTOR;
    type->shape = VECTOR;
    type->count = (uint64_t)number(from);
    type->copies = from->combiner == MPI_COMBINER_CONTIGUOUS ? 1 : (uint64_t)number(from);
    if (from->combiner == MPI_COMBINER_CONTIGUOUS)
        type->stride = type->of->extent;
    else
        type->stride = is_in_bytes ? place(from) : number(from) * type->of->extent;
    MPI_Count run = (MPI_Count)type->copies * type->of->extent;
    int is_dense = type->of->is_run && type->of->size == type->of->extent;
    type->is_run = is_dense && (type->count <= 1 || type->stride == run);
    type->first = type->of->first;
    return 1;
}

static int indexed(struct shim_type *type, struct contents *from)
{
    int combiner = from->combiner;
    int is_block =
        combiner == MPI_COMBINER_INDEXED_BLOCK || combiner == MPI_COMBINER_HINDEXED_BLOCK;
    int is_in_bytes = combiner == MPI_COMBINER_HINDEXED || combiner == MPI_COMBINER_HINDEXED_BLOCK;
    if (!has_parts(type, INDEXED, number(from)))
        return 0;
    uint64_t copies = is_block ? (uint64_t)number(from) : 0;
    for (size_t i = 0; i < type->part_count; i++)
        type->parts[i].copies = is_block ? copies : (uint64_t)number(from);
    for (size_t i = 0; i < type->part_count; i++)
        type->parts[i].at = is_in_bytes ? place(from) : number(from) * type->of->extent;
    return 1;
}

static int structure(struct shim_type *type, struct contents *from)
{
    if (!has_parts(type, STRUCT, number(from)))
        return 0;
    for (size_t i = 0; i < type->part_count; i++)
        type->parts[i].copies = (uint64_t)number(from);
    for (size_t i = 0; i < type->part_count; i++)
        type->parts[i].at = place(from);
    for (size_t i = 0; i < type->part_count; i++)
        if (!(type->parts[i].of = shim_type_of(from->datatypes[i])))
            return 0;
    return 1;
}

static int has_dimensions(struct shim_type *type, enum shape shape, int64_t count)
{
    type->shape = shape;
    type->dimension_count = (size_t)count;
    type->dimensions = calloc((size_t)count + 1, sizeof *type->dimensions);
    /* The count travels in a byte. */
    return type->dimensions != NULL && count <= UINT8_MAX;
}

static int subarray(struct shim_type *type, struct contents *from)
{
    if (!has_dimensions(type, SUBARRAY, integer(from)))
        return 0;
    struct dimension *dimensions = type->dimensions;
    for (size_t i = 0; i < type->dimension_count; i++)
        dimensions[i].size = (uint64_t)number(from);
    for (size_t i = 0; i < type->dimension_count; i++)
        dimensions[i].length = (uint64_t)number(from);
    for (size_t i = 0; i < type->dimension_count; i++)
        dimensions[i].start = (uint64_t)number(from);
    type->is_fortran = integer(from) == MPI_ORDER_FORTRAN;
    return 1;
}

static int darray(struct shim_type *type, struct contents *from)
{
    integer(from); /* All processes: the product of those of each dimension. */
    type->rank = (uint64_t)integer(from);
    if (!has_dimensions(type, DARRAY, integer(from)))
        return 0;
    struct dimension *dimensions = type->dimensions;
    for (size_t i = 0; i < type->dimension_count; i++)
        dimensions[i].size = (uint64_t)number(from);
    for (size_t i = 0; i < type->dimension_count; i++) {
        int64_t distribution = integer(from);
        dimensions[i].distribution = distribution == MPI_DISTRIBUTE_BLOCK    ? 0
                                     : distribution == MPI_DISTRIBUTE_CYCLIC ? 1
                                                                             : 2;
    }
    for (size_t i = 0; i < type->dimension_count; i++) {
        int64_t argument = integer(from);
        int is_cyclic = dimensions[i].distribution == 1;
        /* The default of a cyclic distribution is 1; that of a block one travels as 0. */
        if (argument == MPI_DISTRIBUTE_DFLT_DARG)
            argument = is_cyclic;
        dimensions[i].argument = dimensions[i].distribution == 2 ? 0 : (uint64_t)argument;
    }
    for (size_t i = 0; i < type->dimension_count; i++)
        dimensions[i].processes = (uint64_t)integer(from);
    type->is_fortran = integer(from) == MPI_ORDER_FORTRAN;
    return 1;
}

static int resized(struct shim_type *type)
{
    /* Its bounds are those of every type. */
    type->shape = RESIZED;
    type->is_run = type->of->is_run;
    type->first = type->of->first;
    return 1;
}

/* A filled type, or 0 if the combiner is not known or there is no memory. */
static int fill(struct shim_type *type, struct contents *from)
{
    switch (from->combiner) {
    case MPI_COMBINER_NAMED:
    case MPI_COMBINER_F90_REAL:
    case MPI_COMBINER_F90_COMPLEX:
    case MPI_COMBINER_F90_INTEGER:
        return named(type);
    case MPI_COMBINER_STRUCT:
        return structure(type, from);
#if SHIM_HAS_VALUE_INDEX
    case MPI_COMBINER_VALUE_INDEX:
        return value_index(type, from);
#endif
    }
    if (from->datatype_count != 1 || !(type->of = shim_type_of(from->datatypes[0])))
        return 0;
    switch (from->combiner) {
    case MPI_COMBINER_DUP:
    case MPI_COMBINER_RESIZED:
        return resized(type);
    case MPI_COMBINER_CONTIGUOUS:
    case MPI_COMBINER_VECTOR:
    case MPI_COMBINER_HVECTOR:
        return vector(type, from);
    case MPI_COMBINER_INDEXED:
    case MPI_COMBINER_HINDEXED:
    case MPI_COMBINER_INDEXED_BLOCK:
    case MPI_COMBINER_HINDEXED_BLOCK:
        return indexed(type, from);
    case MPI_COMBINER_SUBARRAY:
        return subarray(type, from);
    case MPI_COMBINER_DARRAY:
        return darray(type, from);
    }
    return 0;
}

struct shim_type *shim_type_of(MPI_Datatype datatype)
{
    struct contents from = {0};
    struct shim_type *type = calloc(1, sizeof *type);
    if (!type)
        return NULL;
    int is_whole = PMPI_Type_size_x(datatype, &type->size) == MPI_SUCCESS &&
                   PMPI_Type_get_extent_x(datatype, &type->begin, &type->extent) == MPI_SUCCESS &&
                   envelope(datatype, &from) == MPI_SUCCESS;
    int is_named = is_whole && from.integer_count + from.datatype_count + from.large_count == 0;
    if (is_whole && !is_named)
        is_whole = contents(datatype, &from) == MPI_SUCCESS;
    is_whole = is_whole && fill(type, &from);
    contents_free(&from);
    if (is_whole)
        return type;
    shim_type_free(type);
    return NULL;
}

void shim_type_free(struct shim_type *type)
{
    if (!type)
        return;
    for (size_t i = 0; i < type->part_count; i++)
        shim_type_free(type->parts[i].of);
    shim_type_free(type->of);
    free(type->parts);
    free(type->dimensions);
    free(type);
}
