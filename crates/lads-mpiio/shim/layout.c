/* A datatype as it travels (view/datatype.rs of lads-core), and as pieces of memory. */
#include "datatype.h"

static void put(struct shim_bytes *out, const void *bytes, size_t length)
{
    if (out->length + length > out->capacity) {
        size_t capacity = 2 * out->capacity + length + 64;
        unsigned char *grown = realloc(out->bytes, capacity);
        if (!grown) {
            out->is_out_of_memory = 1;
            return;
        }
        out->bytes = grown;
        out->capacity = capacity;
    }
    memcpy(out->bytes + out->length, bytes, length);
    out->length += length;
}

/* A number in little-endian order, whatever the order of this machine is. */
static void put_number(struct shim_bytes *out, uint64_t number, size_t length)
{
    unsigned char bytes[8];
    for (size_t i = 0; i < length; i++)
        bytes[i] = (unsigned char)(number >> (8 * i));
    put(out, bytes, length);
}

static void put_byte(struct shim_bytes *out, unsigned byte)
{
    put_number(out, byte, 1);
}

static void put_word(struct shim_bytes *out, uint64_t word)
{
    put_number(out, word, 8);
}

static void put_parts(const struct shim_type *type, struct shim_bytes *out)
{
    put_number(out, type->part_count, 4);
    for (size_t i = 0; i < type->part_count; i++) {
        put_word(out, type->parts[i].copies);
        put_word(out, (uint64_t)type->parts[i].at);
        if (type->shape == STRUCT)
            shim_type_write(type->parts[i].of, out);
    }
}

static void put_array(const struct shim_type *type, struct shim_bytes *out)
{
    int is_darray = type->shape == DARRAY;
    put_byte(out, type->is_fortran != 0);
    if (is_darray)
        put_word(out, type->rank);
    put_byte(out, (unsigned)type->dimension_count);
    for (size_t i = 0; i < type->dimension_count; i++) {
        const struct dimension *dimension = &type->dimensions[i];
        put_word(out, dimension->size);
        if (is_darray)
            put_byte(out, dimension->distribution);
        put_word(out, is_darray ? dimension->argument : dimension->length);
        put_word(out, is_darray ? dimension->processes : dimension->start);
    }
}

/* Whether the bounds are those that the reader of the tree finds by itself. Open MPI pads what is
 * made of anything with an alignment, MPICH only structs; and parts without copies may or may not
 * count. Bounds that go without saying are not said: they cost a level, and levels are limited. */
static int has_plain_bounds(const struct shim_type *type)
{
    MPI_Count inner = type->of ? type->of->extent : 0;
    switch (type->shape) {
    case BYTES:
        return 1;
    case VECTOR: {
        if (type->count == 0 || type->copies == 0 || inner < 0)
            return 0;
        int64_t way = ((int64_t)type->count - 1) * type->stride;
        MPI_Count begin = type->of->begin + (way < 0 ? way : 0);
        MPI_Count length = (MPI_Count)type->copies * inner + (way < 0 ? -way : way);
        return type->begin == begin && type->extent == length;
    }
    case SUBARRAY:
    case DARRAY:
        for (size_t i = 0; i < type->dimension_count; i++)
            inner *= (MPI_Count)type->dimensions[i].size;
        return type->begin == 0 && type->extent == inner;
    case RESIZED:
    case INDEXED:
    case STRUCT:
        break;
    }
    return 0;
}

static void put_bounds(const struct shim_type *type, struct shim_bytes *out)
{
    put_byte(out, RESIZED);
    put_word(out, (uint64_t)type->begin);
    put_word(out, (uint64_t)type->extent);
}

/* The datatype whose bounds something else says. */
static void put_inside(const struct shim_type *type, struct shim_bytes *out)
{
    if (type->shape == RESIZED) {
        put_inside(type->of, out);
        return;
    }
    put_byte(out, type->shape);
    switch (type->shape) {
    case BYTES:
        put_word(out, (uint64_t)type->size);
        return;
    case VECTOR:
        put_word(out, type->count);
        put_word(out, type->copies);
        put_word(out, (uint64_t)type->stride);
        break;
    case INDEXED:
        put_parts(type, out);
        break;
    case STRUCT:
        put_parts(type, out);
        return;
    case SUBARRAY:
    case DARRAY:
        put_array(type, out);
        break;
    case RESIZED:
        break;
    }
    shim_type_write(type->of, out);
}

void shim_type_write(const struct shim_type *type, struct shim_bytes *out)
{
    if (!has_plain_bounds(type))
        put_bounds(type, out);
    put_inside(type, out);
}

/* The elements of a subarray from the slowest dimension on: `step` of them are done. */
static int rows(const struct shim_type *type, size_t step, MPI_Count elements, char *at,
                struct shim_pieces *out)
{
    size_t count = type->dimension_count;
    size_t which = type->is_fortran ? count - 1 - step : step;
    const struct dimension *dimension = &type->dimensions[which];
    /* Elements in one step of this dimension. */
    elements /= (MPI_Count)dimension->size;
    MPI_Count stride = elements * type->of->extent;
    at += (MPI_Count)dimension->start * stride;
    if (step + 1 == count)
        return shim_type_pieces(type->of, (MPI_Count)dimension->length, at, out);
    for (uint64_t i = 0; i < dimension->length; i++)
        if (!rows(type, step + 1, elements, at + (MPI_Count)i * stride, out))
            return 0;
    return 1;
}

static int one(const struct shim_type *type, char *at, struct shim_pieces *out)
{
    if (type->is_run) {
        shim_pieces_add(out, at + type->first, (uint64_t)type->size);
        return 1;
    }
    switch (type->shape) {
    case RESIZED:
        return one(type->of, at, out);
    case VECTOR:
        for (uint64_t i = 0; i < type->count; i++)
            if (!shim_type_pieces(type->of, (MPI_Count)type->copies,
                                  at + (int64_t)i * type->stride, out))
                return 0;
        return 1;
    case INDEXED:
    case STRUCT:
        for (size_t i = 0; i < type->part_count; i++) {
            const struct part *part = &type->parts[i];
            if (!shim_type_pieces(type->shape == STRUCT ? part->of : type->of,
                                  (MPI_Count)part->copies, at + part->at, out))
                return 0;
        }
        return 1;
    case SUBARRAY: {
        MPI_Count elements = 1;
        for (size_t i = 0; i < type->dimension_count; i++)
            elements *= (MPI_Count)type->dimensions[i].size;
        return rows(type, 0, elements, at, out);
    }
    /* Nobody has a share of a distributed array in memory: MPI_Pack does it. */
    case DARRAY:
    case BYTES:
        break;
    }
    return 0;
}

int shim_type_pieces(const struct shim_type *type, MPI_Count copies, char *at,
                     struct shim_pieces *out)
{
    if (type->is_run && (type->size == type->extent || type->size == 0)) {
        shim_pieces_add(out, at + type->first, (uint64_t)(copies * type->size));
        return 1;
    }
    for (MPI_Count i = 0; i < copies; i++)
        if (!one(type, at + i * type->extent, out))
            return 0;
    return 1;
}
