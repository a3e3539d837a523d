/* The data representation external32: external NAME.
 *
 * What is written is compared with the bytes that the standard demands, and is read again by each form
 * of a read.
 */
#include "check.h"
#include <float.h>
#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <wchar.h>

enum { MOST = 4096 };

static const char *name;
static const char EXTERNAL32[] = "external32";

static MPI_File fresh(MPI_Datatype etype, MPI_Datatype filetype)
{
    MPI_File file;
    OK(MPI_File_open(MPI_COMM_WORLD, name, MPI_MODE_RDWR | MPI_MODE_CREATE, MPI_INFO_NULL, &file));
    OK(MPI_File_set_size(file, 0));
    OK(MPI_File_set_view(file, 0, etype, filetype, EXTERNAL32, MPI_INFO_NULL));
    return file;
}

static void meet(MPI_File file)
{
    OK(MPI_File_sync(file));
    MPI_Barrier(MPI_COMM_WORLD);
    OK(MPI_File_sync(file));
}

/* Whether the file has these bytes and no others. Sets the view. */
static int holds(MPI_File file, const void *expected, int length)
{
    unsigned char found[MOST];
    MPI_Status status;
    MPI_Offset size;
    meet(file);
    OK(MPI_File_get_size(file, &size));
    OK(MPI_File_set_view(file, 0, MPI_BYTE, MPI_BYTE, "native", MPI_INFO_NULL));
    OK(MPI_File_read_at(file, 0, found, length, MPI_BYTE, &status));
    return size == length && bytes_of(&status) == length && memcmp(found, expected, length) == 0;
}

/* Rank 0 writes values of a predefined datatype, and finds them again. */
static void values(MPI_Datatype datatype, const void *native, int count, const void *expected,
                   int extent)
{
    unsigned char back[MOST];
    MPI_Status status;
    MPI_Aint found = 0;
    int size, got = -1;
    MPI_Type_size(datatype, &size);
    memset(back, 0x55, sizeof back);
    MPI_File file = fresh(datatype, datatype);
    OK(MPI_File_get_type_extent(file, datatype, &found));
    CHECK(found == extent);
    if (rank == 0)
        OK(MPI_File_write_at(file, 0, native, count, datatype, &status));
    meet(file);
    OK(MPI_File_read_at(file, 0, back, count + 3, datatype, &status));
    OK(MPI_Get_count(&status, datatype, &got));
    CHECK(got == count);
    CHECK(memcmp(back, native, (size_t)(count * size)) == 0);
    CHECK(back[count * size] == 0x55);
    CHECK(holds(file, expected, count * extent));
    OK(MPI_File_close(&file));
}

static void integers(void)
{
    short shorts[2] = {-2, 0x1234};
    values(MPI_SHORT, shorts, 2, "\xff\xfe\x12\x34", 2);
    int ints[2] = {-2, 0x12345678};
    values(MPI_INT, ints, 2, "\xff\xff\xff\xfe\x12\x34\x56\x78", 4);
    values(MPI_INTEGER, ints, 2, "\xff\xff\xff\xfe\x12\x34\x56\x78", 4);
    values(MPI_2INT, ints, 1, "\xff\xff\xff\xfe\x12\x34\x56\x78", 8);
    long longs[2] = {-2, 0x12345678};
    values(MPI_LONG, longs, 2, "\xff\xff\xff\xfe\x12\x34\x56\x78", 4);
    unsigned long unsigned_longs[2] = {0xfffffffe, 1};
    values(MPI_UNSIGNED_LONG, unsigned_longs, 2, "\xff\xff\xff\xfe\0\0\0\1", 4);
    long long wide[1] = {-0x0123456789abcdef};
    values(MPI_LONG_LONG, wide, 1, "\xfe\xdc\xba\x98\x76\x54\x32\x11", 8);
    values(MPI_OFFSET, wide, 1, "\xfe\xdc\xba\x98\x76\x54\x32\x11", 8);
    values(MPI_INT64_T, wide, 1, "\xfe\xdc\xba\x98\x76\x54\x32\x11", 8);
    unsigned char bytes[3] = {1, 200, 3};
    values(MPI_BYTE, bytes, 3, bytes, 1);
    values(MPI_UINT8_T, bytes, 3, bytes, 1);
    values(MPI_CHAR, bytes, 3, bytes, 1);
    _Bool bools[2] = {1, 0};
    values(MPI_C_BOOL, bools, 2, "\1", 1);
    wchar_t wide_text[2] = {L'A', 0x20ac};
    values(MPI_WCHAR, wide_text, 2, "\0A\x20\xac", 2);
}

static void numbers(void)
{
    float floats[2] = {1.5f, -0.0f};
    values(MPI_FLOAT, floats, 2, "\x3f\xc0\0\0\x80\0\0\0", 4);
    values(MPI_C_FLOAT_COMPLEX, floats, 1, "\x3f\xc0\0\0\x80\0\0\0", 8);
    double doubles[2] = {1.5, INFINITY};
    values(MPI_DOUBLE, doubles, 2, "\x3f\xf8\0\0\0\0\0\0\x7f\xf0\0\0\0\0\0", 8);
    values(MPI_C_DOUBLE_COMPLEX, doubles, 1, "\x3f\xf8\0\0\0\0\0\0\x7f\xf0\0\0\0\0\0", 16);
    values(MPI_DOUBLE_PRECISION, doubles, 2, "\x3f\xf8\0\0\0\0\0\0\x7f\xf0\0\0\0\0\0", 8);
    struct {
        double value;
        int index;
    } pair = {1.5, 7};
    MPI_File file = fresh(MPI_DOUBLE_INT, MPI_DOUBLE_INT);
    MPI_Aint extent = 0;
    OK(MPI_File_get_type_extent(file, MPI_DOUBLE_INT, &extent));
    CHECK(extent == 12);
    if (rank == 0) {
        OK(MPI_File_write_at(file, 1, &pair, 1, MPI_DOUBLE_INT, MPI_STATUS_IGNORE));
        OK(MPI_File_write_at(file, 0, &pair, 1, MPI_DOUBLE_INT, MPI_STATUS_IGNORE));
    }
    const char expected[] = "\x3f\xf8\0\0\0\0\0\0\0\0\0\7\x3f\xf8\0\0\0\0\0\0\0\0\0\7";
    CHECK(holds(file, expected, 24));
    OK(MPI_File_close(&file));
}

/* 80 bits in memory on x86, and the format of IEEE with 128 bits in the file. */
static void long_doubles(void)
{
    long double all[] = {1.5L, -0.0L, LDBL_MAX, LDBL_MIN, LDBL_MIN / 8, INFINITY, 1.0L / 3}, back[8];
    int count = sizeof all / sizeof *all;
    MPI_File file = fresh(MPI_LONG_DOUBLE, MPI_LONG_DOUBLE);
    if (rank == 0) {
        OK(MPI_File_write_at(file, 0, all, count, MPI_LONG_DOUBLE, MPI_STATUS_IGNORE));
        long double none = NAN;
        OK(MPI_File_write_at(file, count, &none, 1, MPI_LONG_DOUBLE, MPI_STATUS_IGNORE));
    }
    meet(file);
    OK(MPI_File_read_at(file, 0, back, count + 1, MPI_LONG_DOUBLE, MPI_STATUS_IGNORE));
    for (int i = 0; i < count; i++)
        CHECK(back[i] == all[i] && signbit(back[i]) == signbit(all[i]));
    CHECK(isnan(back[count]));
    unsigned char found[32];
    OK(MPI_File_set_view(file, 0, MPI_BYTE, MPI_BYTE, "native", MPI_INFO_NULL));
    OK(MPI_File_read_at(file, 0, found, 32, MPI_BYTE, MPI_STATUS_IGNORE));
    CHECK(memcmp(found, "\x3f\xff\x80\0\0\0\0\0\0\0\0\0\0\0\0\0\x80\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0",
                 32) == 0);
    OK(MPI_File_close(&file));
}

static void fortran(void)
{
    MPI_Datatype real, integer;
    OK(MPI_Type_create_f90_real(6, 30, &real));
    OK(MPI_Type_create_f90_integer(9, &integer));
    float number = 1.5f;
    values(real, &number, 1, "\x3f\xc0\0\0", 4);
    int value = -2;
    values(integer, &value, 1, "\xff\xff\xff\xfe", 4);
}

/* The sizes that the standard gives for numbers of Fortran with a precision and a range, on both sides of each
 * limit. */
static void fortran_sizes(void)
{
    const int integers[][2] = {{2, 1}, {3, 2}, {4, 2}, {5, 4}, {9, 4}, {10, 8}, {18, 8}};
    const int reals[][3] = {{6, 37, 4}, {7, 37, 8}, {6, 38, 8}, {15, 307, 8}};
    MPI_File file = fresh(MPI_BYTE, MPI_BYTE);
    MPI_Datatype type;
    MPI_Aint extent;
    for (size_t i = 0; i < sizeof integers / sizeof *integers; i++) {
        OK(MPI_Type_create_f90_integer(integers[i][0], &type));
        OK(MPI_File_get_type_extent(file, type, &extent));
        CHECK(extent == integers[i][1]);
    }
    for (size_t i = 0; i < sizeof reals / sizeof *reals; i++) {
        OK(MPI_Type_create_f90_real(reals[i][0], reals[i][1], &type));
        OK(MPI_File_get_type_extent(file, type, &extent));
        CHECK(extent == reals[i][2]);
        OK(MPI_Type_create_f90_complex(reals[i][0], reals[i][1], &type));
        OK(MPI_File_get_type_extent(file, type, &extent));
        CHECK(extent == 2 * reals[i][2]);
    }
    OK(MPI_File_close(&file));
}

/* A struct in memory, whose longs are shorter in the file, and a filetype of longs: every process has one
 * column of a matrix. */
static void derived(void)
{
    struct record {
        char letter;
        long number;
        double real;
        wchar_t wide[2];
    } records[2] = {{'a', -rank, 0.5, L"xy"}, {'b', 100 + rank, -1, L"zw"}}, back[2];
    int lengths[4] = {1, 1, 1, 2};
    MPI_Aint places[4] = {offsetof(struct record, letter), offsetof(struct record, number),
                          offsetof(struct record, real), offsetof(struct record, wide)};
    MPI_Datatype types[4] = {MPI_CHAR, MPI_LONG, MPI_DOUBLE, MPI_WCHAR}, inner, record, column, cell;
    MPI_Type_create_struct(4, lengths, places, types, &inner);
    MPI_Type_create_resized(inner, 0, sizeof(struct record), &record);
    MPI_Type_commit(&record);
    enum { BYTES = 1 + 4 + 8 + 4 };
    MPI_File file = fresh(MPI_BYTE, MPI_BYTE);
    OK(MPI_File_write_at(file, 2 * BYTES * rank, records, 2, record, MPI_STATUS_IGNORE));
    meet(file);
    memset(back, 0, sizeof back);
    MPI_Status status;
    int count = 0;
    OK(MPI_File_read_at(file, 2 * BYTES * rank, back, 2, record, &status));
    OK(MPI_Get_count(&status, record, &count));
    CHECK(count == 2);
    for (int i = 0; i < 2; i++)
        CHECK(back[i].letter == records[i].letter && back[i].number == records[i].number &&
              back[i].real == records[i].real && back[i].wide[0] == records[i].wide[0] &&
              back[i].wide[1] == records[i].wide[1]);
    char expected[2 * BYTES + 1] = "a\0\0\0\0\x3f\xe0\0\0\0\0\0\0\0x\0y";
    memcpy(expected + BYTES, "b\0\0\0\144\xbf\xf0\0\0\0\0\0\0\0z\0w", BYTES);
    char found[2 * BYTES];
    OK(MPI_File_set_view(file, 0, MPI_BYTE, MPI_BYTE, "native", MPI_INFO_NULL));
    OK(MPI_File_read_at(file, 0, found, 2 * BYTES, MPI_BYTE, &status));
    CHECK(memcmp(found, expected, 2 * BYTES) == 0);
    OK(MPI_File_close(&file));

    /* A column of longs, with the extent of one long in the file. */
    MPI_Type_vector(3, 1, processes, MPI_LONG, &column);
    MPI_Type_create_resized(column, 0, 4, &cell);
    MPI_Type_commit(&cell);
    MPI_Type_commit(&column);
    long own[3] = {rank, 10 + rank, 20 + rank}, read[3];
    file = fresh(MPI_LONG, MPI_LONG);
    MPI_Aint extent = 0;
    OK(MPI_File_get_type_extent(file, column, &extent));
    CHECK(extent == 4 * (2 * processes + 1));
    OK(MPI_File_set_view(file, 4 * rank, MPI_LONG, column, EXTERNAL32, MPI_INFO_NULL));
    MPI_Offset place = -1;
    OK(MPI_File_get_byte_offset(file, 1, &place));
    CHECK(place == 4 * (rank + processes));
    OK(MPI_File_write_all(file, own, 3, MPI_LONG, MPI_STATUS_IGNORE));
    meet(file);
    OK(MPI_File_seek(file, 0, MPI_SEEK_SET));
    OK(MPI_File_read_all(file, read, 3, MPI_LONG, MPI_STATUS_IGNORE));
    CHECK(memcmp(own, read, sizeof own) == 0);
    unsigned char matrix[MOST] = {0};
    for (int i = 0; i < 3 * processes; i++)
        matrix[4 * i + 3] = (unsigned char)(10 * (i / processes) + i % processes);
    CHECK(holds(file, matrix, 12 * processes));
    OK(MPI_File_close(&file));
    MPI_Type_free(&inner);
    MPI_Type_free(&record);
    MPI_Type_free(&column);
    MPI_Type_free(&cell);
}

/* A block of an array of longs as the filetype, and a part of an array in memory. */
static void arrays(void)
{
    int sizes[2] = {4, 2 * processes}, parts[2] = {4, 2}, starts[2] = {0, 2 * rank};
    int whole[2] = {6, 5}, begin[2] = {1, 2};
    MPI_Datatype block, memory;
    MPI_Type_create_subarray(2, sizes, parts, starts, MPI_ORDER_C, MPI_LONG, &block);
    MPI_Type_create_subarray(2, whole, parts, begin, MPI_ORDER_C, MPI_LONG, &memory);
    MPI_Type_commit(&block);
    MPI_Type_commit(&memory);
    long from[6][5], to[6][5];
    for (int i = 0; i < 30; i++) {
        from[i / 5][i % 5] = 100 * rank + i;
        to[i / 5][i % 5] = -1;
    }
    MPI_File file = fresh(MPI_LONG, block);
    OK(MPI_File_write_at_all(file, 0, from, 1, memory, MPI_STATUS_IGNORE));
    meet(file);
    OK(MPI_File_read_at_all(file, 0, to, 1, memory, MPI_STATUS_IGNORE));
    for (int i = 0; i < 30; i++) {
        int is_inside = i / 5 >= 1 && i / 5 < 5 && i % 5 >= 2 && i % 5 < 4;
        CHECK(to[i / 5][i % 5] == (is_inside ? from[i / 5][i % 5] : -1));
    }
    MPI_Offset size = 0;
    OK(MPI_File_get_size(file, &size));
    CHECK(size == 4 * 4 * 2 * processes);
    OK(MPI_File_close(&file));
    MPI_Type_free(&block);
    MPI_Type_free(&memory);
}

/* Every form of an access, with longs. */
static void forms(void)
{
    enum { N = 5 };
    long own[N], back[N];
    MPI_Request request;
    MPI_Status status;
    MPI_Offset at;
    int count = 0;
    for (int i = 0; i < N; i++)
        own[i] = 1000 * rank - i;
    MPI_File file = fresh(MPI_LONG, MPI_LONG);
    OK(MPI_File_write_ordered(file, own, N, MPI_LONG, &status));
    OK(MPI_Get_count(&status, MPI_LONG, &count));
    CHECK(count == N);
    meet(file);
    OK(MPI_File_get_position_shared(file, &at));
    CHECK(at == N * processes);
    MPI_Barrier(MPI_COMM_WORLD);
    OK(MPI_File_seek_shared(file, 0, MPI_SEEK_SET));
    OK(MPI_File_read_ordered(file, back, N, MPI_LONG, &status));
    CHECK(memcmp(own, back, sizeof own) == 0);
    OK(MPI_File_iwrite_at(file, N * (processes + rank), own, N, MPI_LONG, &request));
    OK(MPI_Wait(&request, &status));
    OK(MPI_Get_count(&status, MPI_LONG, &count));
    CHECK(count == N);
    memset(back, 0, sizeof back);
    OK(MPI_File_iread_at(file, N * (processes + rank), back, N, MPI_LONG, &request));
    OK(MPI_Wait(&request, &status));
    OK(MPI_Get_count(&status, MPI_LONG, &count));
    CHECK(count == N && memcmp(own, back, sizeof own) == 0);
    meet(file);
    OK(MPI_File_seek(file, -2, MPI_SEEK_END));
    OK(MPI_File_get_position(file, &at));
    CHECK(at == 2 * N * processes - 2);
    OK(MPI_File_read(file, back, N, MPI_LONG, &status));
    OK(MPI_Get_count(&status, MPI_LONG, &count));
    CHECK(count == 2);
    OK(MPI_File_get_position(file, &at));
    CHECK(at == 2 * N * processes);
    OK(MPI_File_seek(file, N * rank, MPI_SEEK_SET));
    memset(back, 0, sizeof back);
    OK(MPI_File_read_all_begin(file, back, N, MPI_LONG));
    OK(MPI_File_read_all_end(file, back, &status));
    OK(MPI_Get_count(&status, MPI_LONG, &count));
    CHECK(count == N && memcmp(own, back, sizeof own) == 0);
    MPI_Barrier(MPI_COMM_WORLD);
    OK(MPI_File_seek_shared(file, 0, MPI_SEEK_SET));
    OK(MPI_File_write_shared(file, own, 1, MPI_LONG, &status));
    meet(file);
    OK(MPI_File_get_position_shared(file, &at));
    CHECK(at == processes);
    OK(MPI_File_close(&file));
}

static void representations(void)
{
    MPI_File file = fresh(MPI_LONG, MPI_LONG);
    const char *names[3] = {"internal", "native", EXTERNAL32};
    MPI_Aint extents[3] = {sizeof(long), sizeof(long), 4};
    for (int i = 0; i < 3; i++) {
        char found[MPI_MAX_DATAREP_STRING + 1] = "";
        MPI_Offset displacement;
        MPI_Datatype etype, filetype;
        MPI_Aint extent = 0;
        OK(MPI_File_set_view(file, 8, MPI_LONG, MPI_LONG, names[i], MPI_INFO_NULL));
        OK(MPI_File_get_view(file, &displacement, &etype, &filetype, found));
        CHECK(strcmp(found, names[i]) == 0 && displacement == 8);
        CHECK(etype == MPI_LONG && filetype == MPI_LONG);
        OK(MPI_File_get_type_extent(file, MPI_LONG, &extent));
        CHECK(extent == extents[i]);
    }
    FAILS(MPI_ERR_UNSUPPORTED_DATAREP,
          MPI_File_set_view(file, 0, MPI_LONG, MPI_LONG, "other", MPI_INFO_NULL));
    if (processes > 1)
        FAILS(MPI_ERR_NOT_SAME, MPI_File_set_view(file, 0, MPI_INT, MPI_INT,
                                                  rank == 0 ? "native" : EXTERNAL32, MPI_INFO_NULL));
    OK(MPI_File_close(&file));
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &processes);
    name = argv[1];
    integers();
    numbers();
    long_doubles();
    fortran();
    fortran_sizes();
    derived();
    arrays();
    forms();
    representations();
    int code = report("external");
    MPI_Finalize();
    return code;
}
