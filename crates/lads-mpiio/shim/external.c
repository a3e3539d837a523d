/* The data representation external32 (MPI 4.0, section 14.5.2): big-endian, IEEE numbers, with sizes
 * that do not depend on the machine, and without padding.
 *
 * datatype.c asks for the elements of which predefined datatypes consist, and lays a datatype out by
 * their sizes in the file. An access converts between the pieces of memory and a buffer that has the
 * data as it is in the file.
 */
#include "datatype.h"

/* A floating-point number of 16 bytes as IEEE defines it. */
#if __LDBL_MANT_DIG__ == 113
typedef long double quad;
#else
typedef __float128 quad;
#endif

static const struct {
    MPI_Datatype datatype;
    struct element element;
} PREDEFINED[] = {
    {MPI_BYTE, {OPAQUE, 1, 1}},
    {MPI_PACKED, {OPAQUE, 1, 1}},
    {MPI_CHAR, {OPAQUE, 1, 1}},
    {MPI_SIGNED_CHAR, {OPAQUE, 1, 1}},
    {MPI_UNSIGNED_CHAR, {OPAQUE, 1, 1}},
    {MPI_CHARACTER, {OPAQUE, 1, 1}},
    {MPI_C_BOOL, {OPAQUE, 1, 1}},
    {MPI_WCHAR, {UNSIGNED, 1, 2}},
    {MPI_INT8_T, {SIGNED, 1, 1}},
    {MPI_INT16_T, {SIGNED, 1, 2}},
    {MPI_INT32_T, {SIGNED, 1, 4}},
    {MPI_INT64_T, {SIGNED, 1, 8}},
    {MPI_SHORT, {SIGNED, 1, 2}},
    {MPI_INT, {SIGNED, 1, 4}},
    {MPI_LONG, {SIGNED, 1, 4}},
    {MPI_LONG_LONG, {SIGNED, 1, 8}},
    {MPI_AINT, {SIGNED, 1, 8}},
    {MPI_COUNT, {SIGNED, 1, 8}},
    {MPI_OFFSET, {SIGNED, 1, 8}},
    {MPI_UINT8_T, {UNSIGNED, 1, 1}},
    {MPI_UINT16_T, {UNSIGNED, 1, 2}},
    {MPI_UINT32_T, {UNSIGNED, 1, 4}},
    {MPI_UINT64_T, {UNSIGNED, 1, 8}},
    {MPI_UNSIGNED_SHORT, {UNSIGNED, 1, 2}},
    {MPI_UNSIGNED, {UNSIGNED, 1, 4}},
    {MPI_UNSIGNED_LONG, {UNSIGNED, 1, 4}},
    {MPI_UNSIGNED_LONG_LONG, {UNSIGNED, 1, 8}},
    {MPI_INTEGER, {SIGNED, 1, 4}},
    {MPI_LOGICAL, {SIGNED, 1, 4}},
    {MPI_INTEGER1, {SIGNED, 1, 1}},
    {MPI_INTEGER2, {SIGNED, 1, 2}},
    {MPI_INTEGER4, {SIGNED, 1, 4}},
    {MPI_INTEGER8, {SIGNED, 1, 8}},
#ifdef MPI_INTEGER16
    {MPI_INTEGER16, {SIGNED, 1, 16}},
#endif
    {MPI_FLOAT, {FLOATING, 1, 4}},
    {MPI_DOUBLE, {FLOATING, 1, 8}},
    {MPI_LONG_DOUBLE, {LONG_DOUBLE, 1, 16}},
    {MPI_REAL, {FLOATING, 1, 4}},
    {MPI_DOUBLE_PRECISION, {FLOATING, 1, 8}},
#ifdef MPI_REAL2
    {MPI_REAL2, {FLOATING, 1, 2}},
#endif
    {MPI_REAL4, {FLOATING, 1, 4}},
    {MPI_REAL8, {FLOATING, 1, 8}},
#ifdef MPI_REAL16
    {MPI_REAL16, {FLOATING, 1, 16}},
#endif
    {MPI_C_FLOAT_COMPLEX, {FLOATING, 2, 4}},
    {MPI_C_DOUBLE_COMPLEX, {FLOATING, 2, 8}},
    {MPI_C_LONG_DOUBLE_COMPLEX, {LONG_DOUBLE, 2, 16}},
#ifdef MPI_CXX_BOOL
    {MPI_CXX_BOOL, {OPAQUE, 1, 1}},
    {MPI_CXX_FLOAT_COMPLEX, {FLOATING, 2, 4}},
    {MPI_CXX_DOUBLE_COMPLEX, {FLOATING, 2, 8}},
    {MPI_CXX_LONG_DOUBLE_COMPLEX, {LONG_DOUBLE, 2, 16}},
#endif
    {MPI_COMPLEX, {FLOATING, 2, 4}},
    {MPI_DOUBLE_COMPLEX, {FLOATING, 2, 8}},
#ifdef MPI_COMPLEX4
    {MPI_COMPLEX4, {FLOATING, 2, 2}},
#endif
    {MPI_COMPLEX8, {FLOATING, 2, 4}},
    {MPI_COMPLEX16, {FLOATING, 2, 8}},
#ifdef MPI_COMPLEX32
    {MPI_COMPLEX32, {FLOATING, 2, 16}},
#endif
    {MPI_2INT, {SIGNED, 2, 4}},
    {MPI_2INTEGER, {SIGNED, 2, 4}},
    {MPI_2REAL, {FLOATING, 2, 4}},
    {MPI_2DOUBLE_PRECISION, {FLOATING, 2, 8}},
};

struct element shim_element_of(MPI_Datatype datatype)
{
    for (size_t i = 0; i < sizeof PREDEFINED / sizeof *PREDEFINED; i++)
        if (PREDEFINED[i].datatype == datatype)
            return PREDEFINED[i].element;
    return (struct element){UNKNOWN, 0, 0};
}

/* The bytes in external32 that the standard gives for MPI_Type_create_f90_real and _complex. */
static unsigned char real_bytes(int64_t digits, int64_t range)
{
    return digits > 15 || range > 307 ? 16 : digits > 6 || range > 37 ? 8 : 4;
}

static unsigned char integer_bytes(int64_t range)
{
    return range > 18 ? 16 : range > 9 ? 8 : range > 4 ? 4 : range > 2 ? 2 : 1;
}

struct element shim_element_of_f90(int combiner, int64_t first, int64_t second)
{
    if (combiner == MPI_COMBINER_F90_INTEGER)
        return (struct element){SIGNED, 1, integer_bytes(first)};
    unsigned char values = combiner == MPI_COMBINER_F90_COMPLEX ? 2 : 1;
    /* A Fortran compiler may have a kind for what a long double of x86 holds: 18 digits. */
    int is_long_double = first > 15 && first <= 18 && __LDBL_MANT_DIG__ == 64;
    return (struct element){is_long_double ? LONG_DOUBLE : FLOATING, values,
                            real_bytes(first, second)};
}

MPI_Count shim_external_bytes(const struct shim_type *type)
{
    if (type->element.kind != UNKNOWN)
        return type->element.values * type->element.external;
    MPI_Count sum = 0;
    for (size_t i = 0; i < type->part_count && !type->of; i++) {
        const struct part *part = &type->parts[i];
        MPI_Count bytes = shim_external_bytes(part->of);
        if (bytes < 0)
            return -1;
        sum += (MPI_Count)part->copies * bytes;
    }
    if (type->of && type->of->size > 0) {
        MPI_Count bytes = shim_external_bytes(type->of);
        return bytes < 0 ? -1 : type->size / type->of->size * bytes;
    }
    return type->size == 0 || sum > 0 ? sum : -1;
}

/* Where a conversion is. */
struct conversion {
    /* Memory, in the order of its bytes. */
    const rfs_piece *piece;
    size_t at;
    unsigned char *external;
    uint64_t external_left;
    uint64_t native_done;
    enum shim_direction direction;
};

static int is_little_endian(void)
{
    const uint16_t one = 1;
    return *(const unsigned char *)&one == 1;
}

/* An integer: the least significant bytes are moved, and the sign fills what is missing. */
static void copy_integer(unsigned char *to, size_t to_bytes, int is_to_little,
                         const unsigned char *from, size_t from_bytes, int is_from_little,
                         int is_signed)
{
    unsigned char top = from[is_from_little ? from_bytes - 1 : 0];
    unsigned char fill = is_signed && top & 0x80 ? 0xff : 0;
    for (size_t i = 0; i < to_bytes; i++) {
        unsigned char byte = fill;
        if (i < from_bytes)
            byte = from[is_from_little ? i : from_bytes - 1 - i];
        to[is_to_little ? i : to_bytes - 1 - i] = byte;
    }
}

static quad read_number(const unsigned char *native, size_t bytes, enum element_kind kind)
{
    float single;
    double twice;
    long double extended;
    quad number = 0;
    if (kind == LONG_DOUBLE) {
        memcpy(&extended, native, sizeof extended);
        number = extended;
    } else if (bytes == sizeof single) {
        memcpy(&single, native, sizeof single);
        number = single;
    } else if (bytes == sizeof twice) {
        memcpy(&twice, native, sizeof twice);
        number = twice;
    } else {
        memcpy(&number, native, sizeof number);
    }
    return number;
}

static void write_number(quad number, unsigned char *native, size_t bytes, enum element_kind kind)
{
    /* Only one conversion: another may raise a floating-point exception. */
    if (kind == LONG_DOUBLE) {
        long double extended = (long double)number;
        memcpy(native, &extended, sizeof extended);
    } else if (bytes == sizeof(float)) {
        float single = (float)number;
        memcpy(native, &single, sizeof single);
    } else if (bytes == sizeof(double)) {
        double twice = (double)number;
        memcpy(native, &twice, sizeof twice);
    } else {
        memcpy(native, &number, sizeof number);
    }
}

/* One value between its native form and external32. */
static void convert_value(struct element element, unsigned char *native, size_t native_bytes,
                          unsigned char *external, enum shim_direction direction)
{
    int is_little = is_little_endian(), is_signed = element.kind == SIGNED;
    size_t bytes = element.external;
    int is_number = element.kind == FLOATING || element.kind == LONG_DOUBLE;
    if (is_number && (element.kind == LONG_DOUBLE || native_bytes != bytes)) {
        unsigned char held[sizeof(quad)] = {0};
        if (direction == TO_FILE) {
            write_number(read_number(native, native_bytes, element.kind), held, bytes, FLOATING);
            copy_integer(external, bytes, 0, held, bytes, is_little, 0);
        } else {
            copy_integer(held, bytes, is_little, external, bytes, 0, 0);
            write_number(read_number(held, bytes, FLOATING), native, native_bytes, element.kind);
        }
    } else if (direction == TO_FILE) {
        copy_integer(external, bytes, 0, native, native_bytes, is_little, is_signed);
    } else {
        copy_integer(native, native_bytes, is_little, external, bytes, 0, is_signed);
    }
}

/* Values of one kind, one after the other, until the external data ends. Returns 0 then. */
static int convert_values(struct conversion *now, struct element element, size_t native_bytes,
                          uint64_t count)
{
    for (; count > 0; count--) {
        if (now->external_left < element.external)
            return 0;
        if (now->at == now->piece->length) {
            now->piece++;
            now->at = 0;
        }
        unsigned char *native = (unsigned char *)now->piece->bytes + now->at;
        convert_value(element, native, native_bytes, now->external, now->direction);
        now->at += native_bytes;
        now->native_done += native_bytes;
        now->external += element.external;
        now->external_left -= element.external;
    }
    return 1;
}

/* Copies of a datatype. Their order in the data is all that counts, wherever they are in memory. */
static int convert_copies(struct conversion *now, const struct shim_type *type, uint64_t copies)
{
    struct element element = type->element;
    if (type->size == 0 || copies == 0)
        return 1;
    if (element.kind != UNKNOWN)
        return convert_values(now, element, (size_t)type->size / element.values,
                              copies * element.values);
    if (type->of)
        return convert_copies(now, type->of,
                              copies * (uint64_t)(type->size / type->of->size));
    for (uint64_t copy = 0; copy < copies; copy++)
        for (size_t i = 0; i < type->part_count; i++)
            if (!convert_copies(now, type->parts[i].of, type->parts[i].copies))
                return 0;
    return 1;
}

uint64_t shim_external_convert(const struct shim_type *type, uint64_t copies,
                               const struct shim_pieces *pieces, unsigned char *external,
                               uint64_t external_bytes, enum shim_direction direction)
{
    struct conversion now = {pieces->list, 0, external, external_bytes, 0, direction};
    convert_copies(&now, type, copies);
    return now.native_done;
}
