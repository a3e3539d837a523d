/* What a datatype of MPI is made of: taken apart once by MPI_Type_get_envelope and
 * MPI_Type_get_contents. layout.c writes it as it travels, or lays it out in memory.
 */
#include "datatype.h"

/* The arguments by which a datatype was made. A type made by a large-count constructor has its
 * counts and places in an array of their own, in the same order: `number` and `place` hide that. */
struct contents {
    int combiner;
    /* Sizes are those of external32. */
    int is_external;
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

int shim_is_predefined(MPI_Datatype datatype)
{
    struct contents from = {0};
    if (envelope(datatype, &from) != MPI_SUCCESS)
        return 1;
    switch (from.combiner) {
    case MPI_COMBINER_NAMED:
    case MPI_COMBINER_F90_REAL:
    case MPI_COMBINER_F90_COMPLEX:
    case MPI_COMBINER_F90_INTEGER:
        return 1;
    default:
        return 0;
    }
}

/* MPI_Type_get_contents gives a reference to each derived datatype; the others must not be freed. */
static void contents_free(struct contents *from)
{
    for (MPI_Count i = 0; i < from->datatype_count; i++)
        if (!shim_is_predefined(from->datatypes[i]))
            PMPI_Type_free(&from->datatypes[i]);
    free(from->integers);
    free(from->addresses);
    free(from->large);
    free(from->datatypes);
}

/* Whether there is memory for the parts of an indexed type or a struct. */
static int has_parts(struct shim_type *type, enum shape shape, int64_t count)
{
    type->shape = shape;
    type->parts = calloc((size_t)count + 1, sizeof *type->parts);
    type->part_count = type->parts ? (size_t)count : 0;
    return type->parts != NULL;
}

static struct shim_type *type_of(MPI_Datatype datatype, int is_external);

/* A value and an integer after it, as in a C struct (MPI_DOUBLE_INT): there may be a hole. In external32
 * there is none. */
static int pair(struct shim_type *type, MPI_Datatype value, MPI_Datatype index, int is_external)
{
    enum shape shape = type->is_run ? BYTES : STRUCT;
    if (!has_parts(type, shape, 2))
        return 0;
    type->is_pair = 1;
    type->parts[0] = (struct part){1, 0, type_of(value, is_external)};
    type->parts[1] = (struct part){1, 0, type_of(index, is_external)};
    const struct shim_type *first = type->parts[0].of, *second = type->parts[1].of;
    if (!first || !second)
        return 0;
    MPI_Count step = is_external ? 1 : second->size;
    type->parts[1].at = (first->size + step - 1) / step * step;
    return 1;
}

/* The predefined datatypes of a value and an integer. */
static int named_pair(struct shim_type *type, MPI_Datatype datatype, int is_external)
{
    const MPI_Datatype pairs[][2] = {
        {MPI_SHORT_INT, MPI_SHORT}, {MPI_LONG_INT, MPI_LONG},
        {MPI_FLOAT_INT, MPI_FLOAT}, {MPI_DOUBLE_INT, MPI_DOUBLE},
        {MPI_LONG_DOUBLE_INT, MPI_LONG_DOUBLE},
    };
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++)
        if (pairs[i][0] == datatype)
            return pair(type, pairs[i][1], MPI_INT, is_external);
    return 0;
}

static int named(struct shim_type *type, MPI_Datatype datatype, struct contents *from)
{
    switch (from->combiner) {
    case MPI_COMBINER_NAMED:
        type->element = shim_element_of(datatype);
        break;
    case MPI_COMBINER_F90_INTEGER:
        type->element = shim_element_of_f90(from->combiner, integer(from), 0);
        break;
    default: {
        int64_t digits = integer(from);
        type->element = shim_element_of_f90(from->combiner, digits, integer(from));
    }
    }
    if (from->is_external && type->element.kind != UNKNOWN)
        type->size = type->extent = type->element.values * type->element.external;
    type->is_run = type->size == type->extent || type->size == 0;
    if (type->element.kind != UNKNOWN || type->size == 0)
        return 1;
    return named_pair(type, datatype, from->is_external) || (type->is_run && !from->is_external);
}

#if SHIM_HAS_VALUE_INDEX
static int value_index(struct shim_type *type, struct contents *from)
{
    return pair(type, from->datatypes[0], from->datatypes[1], from->is_external);
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
        if (!(type->parts[i].of = type_of(from->datatypes[i], from->is_external)))
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
static int fill(struct shim_type *type, MPI_Datatype datatype, struct contents *from)
{
    switch (from->combiner) {
    case MPI_COMBINER_NAMED:
    case MPI_COMBINER_F90_REAL:
    case MPI_COMBINER_F90_COMPLEX:
    case MPI_COMBINER_F90_INTEGER:
        return named(type, datatype, from);
    case MPI_COMBINER_STRUCT:
        return structure(type, from);
#if SHIM_HAS_VALUE_INDEX
    case MPI_COMBINER_VALUE_INDEX:
        return value_index(type, from);
#endif
    }
    if (from->datatype_count != 1 || !(type->of = type_of(from->datatypes[0], from->is_external)))
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

/* Widens bounds so that copies of a datatype at a place are inside. */
static void enclose(MPI_Count bounds[2], MPI_Count at, uint64_t copies, const struct shim_type *of)
{
    if (copies == 0)
        return;
    MPI_Count first = at + of->begin, last = first + ((MPI_Count)copies - 1) * of->extent;
    MPI_Count begin = first < last ? first : last, end = (first < last ? last : first) + of->extent;
    bounds[0] = begin < bounds[0] ? begin : bounds[0];
    bounds[1] = end > bounds[1] ? end : bounds[1];
}

static MPI_Count size_of(const struct shim_type *type, MPI_Count native, MPI_Datatype inner)
{
    MPI_Count sum = 0, inner_size = 0;
    if (type->of) {
        PMPI_Type_size_x(inner, &inner_size);
        return inner_size > 0 ? native / inner_size * type->of->size : 0;
    }
    for (size_t i = 0; i < type->part_count; i++)
        sum += (MPI_Count)type->parts[i].copies * type->parts[i].of->size;
    return sum;
}

/* Size and bounds by the sizes in external32. Bounds that the program has set stay; those of a struct are
 * the bounds of its parts. */
static void measure(struct shim_type *type, const struct contents *from)
{
    MPI_Count bounds[2] = {INT64_MAX, INT64_MIN}, all = type->of ? type->of->extent : 0;
    type->size = size_of(type, type->size, from->datatype_count ? from->datatypes[0] : MPI_BYTE);
    switch (type->shape) {
    case RESIZED:
        if (from->combiner == MPI_COMBINER_RESIZED)
            return;
        enclose(bounds, 0, 1, type->of);
        break;
    case VECTOR:
        if (type->count > 0) {
            enclose(bounds, 0, type->copies, type->of);
            enclose(bounds, ((int64_t)type->count - 1) * type->stride, type->copies, type->of);
        }
        break;
    case SUBARRAY:
    case DARRAY:
        for (size_t i = 0; i < type->dimension_count; i++)
            all *= (MPI_Count)type->dimensions[i].size;
        bounds[0] = 0;
        bounds[1] = all;
        break;
    case BYTES:
    case INDEXED:
    case STRUCT:
        for (size_t i = 0; i < type->part_count; i++)
            enclose(bounds, type->parts[i].at, type->parts[i].copies,
                    type->of ? type->of : type->parts[i].of);
        break;
    }
    int is_empty = bounds[0] > bounds[1];
    type->begin = is_empty ? 0 : bounds[0];
    type->extent = is_empty ? 0 : bounds[1] - bounds[0];
}

static struct shim_type *type_of(MPI_Datatype datatype, int is_external)
{
    struct contents from = {.is_external = is_external};
    struct shim_type *type = calloc(1, sizeof *type);
    if (!type)
        return NULL;
    int is_whole = PMPI_Type_size_x(datatype, &type->size) == MPI_SUCCESS &&
                   PMPI_Type_get_extent_x(datatype, &type->begin, &type->extent) == MPI_SUCCESS &&
                   envelope(datatype, &from) == MPI_SUCCESS;
    int is_named = is_whole && from.integer_count + from.datatype_count + from.large_count == 0;
    if (is_whole && !is_named)
        is_whole = contents(datatype, &from) == MPI_SUCCESS;
    is_whole = is_whole && fill(type, datatype, &from);
    if (is_whole && is_external && type->element.kind == UNKNOWN)
        measure(type, &from);
    contents_free(&from);
    if (is_whole)
        return type;
    shim_type_free(type);
    return NULL;
}

struct shim_type *shim_type_of(MPI_Datatype datatype)
{
    return type_of(datatype, 0);
}

/* Whether a datatype has the same layout in memory as in external32. Then its bounds are those that the
 * MPI gives, by whatever rules. */
static int is_same_in_external(const struct shim_type *type)
{
    struct element element = type->element;
    if (element.kind != UNKNOWN)
        return element.values * element.external == type->size && type->size == type->extent;
    if (type->of)
        return is_same_in_external(type->of);
    MPI_Count sum = 0;
    for (size_t i = 0; i < type->part_count; i++) {
        if (!is_same_in_external(type->parts[i].of))
            return 0;
        sum += type->parts[i].of->size;
    }
    /* A pair has no hole in external32. */
    return !type->is_pair || sum == type->extent;
}

struct shim_type *shim_external_type_of(MPI_Datatype datatype)
{
    struct shim_type *type = shim_type_of(datatype);
    if (type && shim_external_bytes(type) >= 0 && is_same_in_external(type))
        return type;
    int has_form = type && shim_external_bytes(type) >= 0;
    shim_type_free(type);
    return has_form ? type_of(datatype, 1) : NULL;
}

MPI_Count shim_type_extent(const struct shim_type *type)
{
    return type->extent;
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
