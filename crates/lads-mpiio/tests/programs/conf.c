/* Whether MPI-IO does what the standard says, function by function: conf NAME.
 *
 * It runs on a local file too: then it tries the library, through the shim or without it. Where
 * processes read what others wrote there is a sync, a barrier and a sync between, as the standard
 * demands.
 */
#include "conf_data.h"
#include <stdlib.h>

static void opening(void)
{
    MPI_File file;
    int amode;
    if (rank == 0)
        MPI_File_delete(name, MPI_INFO_NULL);
    together();
    FAILS(MPI_ERR_NO_SUCH_FILE,
          MPI_File_open(MPI_COMM_WORLD, name, MPI_MODE_RDONLY, MPI_INFO_NULL, &file));
    FAILS(MPI_ERR_AMODE, MPI_File_open(MPI_COMM_WORLD, name, MPI_MODE_RDONLY | MPI_MODE_RDWR,
                                       MPI_INFO_NULL, &file));
    FAILS(MPI_ERR_AMODE, MPI_File_open(MPI_COMM_WORLD, name, MPI_MODE_RDONLY | MPI_MODE_CREATE,
                                       MPI_INFO_NULL, &file));
    FAILS(MPI_ERR_AMODE, MPI_File_open(MPI_COMM_WORLD, name, MPI_MODE_RDWR | MPI_MODE_SEQUENTIAL,
                                       MPI_INFO_NULL, &file));
    int made = MPI_MODE_RDWR | MPI_MODE_CREATE | MPI_MODE_EXCL;
    file = open_as(made);
    OK(MPI_File_get_amode(file, &amode));
    CHECK(amode == made);
    MPI_Group group, world;
    int relation;
    OK(MPI_File_get_group(file, &group));
    MPI_Comm_group(MPI_COMM_WORLD, &world);
    MPI_Group_compare(group, world, &relation);
    CHECK(relation == MPI_IDENT);
    MPI_Group_free(&group);
    MPI_Group_free(&world);
    OK(MPI_File_close(&file));
    CHECK(file == MPI_FILE_NULL);
    FAILS(MPI_ERR_FILE_EXISTS, MPI_File_open(MPI_COMM_WORLD, name, made, MPI_INFO_NULL, &file));
}

static void sizes(void)
{
    MPI_File file = fresh();
    MPI_Offset size = -1;
    OK(MPI_File_get_size(file, &size));
    CHECK(size == 0);
    together();
    OK(MPI_File_set_size(file, 1000));
    OK(MPI_File_get_size(file, &size));
    CHECK(size == 1000);
    together();
    OK(MPI_File_preallocate(file, 5000));
    OK(MPI_File_get_size(file, &size));
    CHECK(size == 5000);
    together();
    OK(MPI_File_preallocate(file, 100));
    OK(MPI_File_get_size(file, &size));
    CHECK(size == 5000);
    together();
    OK(MPI_File_set_size(file, 10));
    OK(MPI_File_get_size(file, &size));
    CHECK(size == 10);
    OK(MPI_File_close(&file));
}

/* The number of mappings of the memory that the processes of a file share, with or without a name. */
static int mappings(int has_name)
{
    char line[4096];
    int count = 0;
    FILE *maps = fopen("/proc/self/maps", "r");
    while (maps && fgets(line, sizeof line, maps))
        count += strstr(line, "/dev/shm/lads-") && !strstr(line, " (deleted)") == has_name;
    if (maps)
        fclose(maps);
    return count;
}

/* The shared pointer; each process finds the records of all, in some order. */
static void shared(void)
{
    MPI_File file = fresh();
    STRICT(CHECK(mappings(0) == (processes > 1)));
    CHECK(mappings(1) == 0);
    MPI_Status status;
    MPI_Request request;
    MPI_Offset at;
    int record[4] = {rank, rank, rank, rank}, back[4], seen[64] = {0};
    OK(MPI_File_set_view(file, 0, MPI_INT, MPI_INT, "native", MPI_INFO_NULL));
    OK(MPI_File_write_shared(file, record, 4, MPI_INT, &status));
    CHECK(bytes_of(&status) == 16);
    OK(MPI_File_iwrite_shared(file, record, 4, MPI_INT, &request));
    OK(MPI_Wait(&request, &status));
    meet(file);
    OK(MPI_File_get_position_shared(file, &at));
    CHECK(at == 8 * processes);
    for (int i = 0; i < 2 * processes; i++) {
        OK(MPI_File_read_at(file, 4 * i, back, 4, MPI_INT, &status));
        CHECK(back[0] == back[3] && back[0] >= 0 && back[0] < processes);
        seen[back[0] % 64]++;
    }
    for (int i = 0; i < processes; i++)
        CHECK(seen[i] == 2);
    together();
    OK(MPI_File_seek_shared(file, 0, MPI_SEEK_SET));
    OK(MPI_File_read_shared(file, back, 4, MPI_INT, &status));
    CHECK(bytes_of(&status) == 16);
    OK(MPI_File_iread_shared(file, back, 4, MPI_INT, &request));
    OK(MPI_Wait(&request, &status));
    together();
    OK(MPI_File_seek_shared(file, -4, MPI_SEEK_CUR));
    OK(MPI_File_get_position_shared(file, &at));
    CHECK(at == 8 * processes - 4);
    together();
    OK(MPI_File_seek_shared(file, -8, MPI_SEEK_END));
    OK(MPI_File_get_position_shared(file, &at));
    CHECK(at == 8 * processes - 8);
    /* A view sets it to 0. */
    together();
    OK(MPI_File_set_view(file, 0, MPI_INT, MPI_INT, "native", MPI_INFO_NULL));
    OK(MPI_File_get_position_shared(file, &at));
    CHECK(at == 0);
    if (processes > 1)
        STRICT(CHECK(MPI_File_seek_shared(file, rank, MPI_SEEK_SET) != MPI_SUCCESS));
    OK(MPI_File_close(&file));
}

/* Records of different lengths, in the order of the processes. */
static void ordered(void)
{
    MPI_File file = fresh();
    MPI_Status status;
    MPI_Offset at;
    int values[N], back[N] = {0}, count = rank + 1, before = rank * (rank + 1) / 2;
    int all = processes * (processes + 1) / 2;
    fill(values, 100 * rank);
    OK(MPI_File_set_view(file, 0, MPI_INT, MPI_INT, "native", MPI_INFO_NULL));
    OK(MPI_File_write_ordered(file, values, count, MPI_INT, &status));
    CHECK(bytes_of(&status) == 4 * count);
    OK(MPI_File_write_ordered_begin(file, values, count, MPI_INT));
    OK(MPI_File_write_ordered_end(file, values, &status));
    CHECK(bytes_of(&status) == 4 * count);
    meet(file);
    OK(MPI_File_get_position_shared(file, &at));
    CHECK(at == 2 * all);
    for (int round = 0; round < 2; round++) {
        OK(MPI_File_read_at(file, round * all + before, back, count, MPI_INT, &status));
        CHECK(memcmp(back, values, 4 * (size_t)count) == 0);
    }
    together();
    OK(MPI_File_seek_shared(file, 0, MPI_SEEK_SET));
    memset(back, 0, sizeof back);
    OK(MPI_File_read_ordered(file, back, count, MPI_INT, &status));
    CHECK(memcmp(back, values, 4 * (size_t)count) == 0);
    memset(back, 0, sizeof back);
    OK(MPI_File_read_ordered_begin(file, back, count, MPI_INT));
    OK(MPI_File_read_ordered_end(file, back, &status));
    CHECK(memcmp(back, values, 4 * (size_t)count) == 0);
    OK(MPI_File_close(&file));
}

static void amodes(void)
{
    MPI_Status status;
    MPI_Offset at;
    int values[N], back[N] = {0};
    fill(values, 0);
    MPI_File file = fresh();
    OK(MPI_File_set_size(file, 40));
    OK(MPI_File_close(&file));
    file = open_as(MPI_MODE_RDONLY);
    FAILS(MPI_ERR_READ_ONLY, MPI_File_write_at(file, 0, values, 1, MPI_INT, &status));
    OK(MPI_File_read_at(file, 0, back, N, MPI_INT, &status));
    CHECK(bytes_of(&status) == 40);
    CHECK(MPI_File_set_size(file, 0) != MPI_SUCCESS);
    OK(MPI_File_close(&file));
    file = open_as(MPI_MODE_WRONLY);
    FAILS(MPI_ERR_ACCESS, MPI_File_read_at(file, 0, back, 1, MPI_INT, &status));
    OK(MPI_File_close(&file));
    file = open_as(MPI_MODE_RDWR | MPI_MODE_APPEND);
    OK(MPI_File_get_position(file, &at));
    CHECK(at == 40);
    OK(MPI_File_get_position_shared(file, &at));
    CHECK(at == 40);
    OK(MPI_File_close(&file));
    file = open_as(MPI_MODE_WRONLY | MPI_MODE_SEQUENTIAL);
    STRICT(FAILS(MPI_ERR_UNSUPPORTED_OPERATION, MPI_File_seek(file, 0, MPI_SEEK_SET)));
    STRICT(FAILS(MPI_ERR_UNSUPPORTED_OPERATION, MPI_File_write_at(file, 0, values, 1, MPI_INT, &status)));
    STRICT(FAILS(MPI_ERR_UNSUPPORTED_OPERATION, MPI_File_write(file, values, 1, MPI_INT, &status)));
    OK(MPI_File_write_ordered(file, values, 2, MPI_INT, &status));
    OK(MPI_File_close(&file));
    file = open_as(MPI_MODE_RDWR | MPI_MODE_CREATE | MPI_MODE_DELETE_ON_CLOSE);
    OK(MPI_File_close(&file));
    FAILS(MPI_ERR_NO_SUCH_FILE,
          MPI_File_open(MPI_COMM_WORLD, name, MPI_MODE_RDONLY, MPI_INFO_NULL, &file));
    FAILS(MPI_ERR_NO_SUCH_FILE, MPI_File_delete(name, MPI_INFO_NULL));
}

/* Whether an MPI_Info has a value under a key. */
static int has(MPI_Info info, const char *key, const char *value)
{
    char found[MPI_MAX_INFO_VAL + 1];
    int is_there = 0;
    MPI_Info_get(info, key, MPI_MAX_INFO_VAL, found, &is_there);
    return is_there && strcmp(found, value) == 0;
}

static void hints(void)
{
    MPI_File file;
    MPI_Info info, used;
    MPI_Info_create(&info);
    MPI_Info_set(info, "rfs_buffer_size", "1048576");
    OK(MPI_File_open(MPI_COMM_WORLD, name, MPI_MODE_RDWR | MPI_MODE_CREATE, info, &file));
    OK(MPI_File_get_info(file, &used));
    STRICT(CHECK(has(used, "rfs_buffer_size", "1048576")));
    MPI_Info_free(&used);
    MPI_Info_set(info, "rfs_staging", "none");
    OK(MPI_File_set_info(file, info));
    OK(MPI_File_get_info(file, &used));
    STRICT(CHECK(has(used, "rfs_staging", "none")));
    MPI_Info_free(&used);
    MPI_Info_free(&info);
    OK(MPI_File_close(&file));
}

/* A number that a file tells among its hints. */
static unsigned long long told(MPI_File file, const char *key)
{
    char found[MPI_MAX_INFO_VAL + 1] = "";
    MPI_Info used;
    int is_there = 0;
    MPI_File_get_info(file, &used);
    MPI_Info_get(used, key, MPI_MAX_INFO_VAL, found, &is_there);
    MPI_Info_free(&used);
    return is_there ? strtoull(found, NULL, 10) : 0;
}

/* How many bytes were read ahead, and how many did not cost a round trip, for the whole process. */
static void counters(void)
{
    MPI_File file = fresh();
    MPI_Info info;
    MPI_Status status;
    int values[N], back[N];
    fill(values, 0);
    if (rank == 0)
        OK(MPI_File_write_at(file, 0, values, N, MPI_INT, &status));
    OK(MPI_File_close(&file));
    together();
    MPI_Info_create(&info);
    MPI_Info_set(info, "rfs_prefetch", "false");
    OK(MPI_File_open(MPI_COMM_WORLD, name, MPI_MODE_RDONLY, info, &file));
    unsigned long long kept = told(file, "rfs_read_kept"), ahead = told(file, "rfs_read_ahead");
    OK(MPI_File_read_at(file, 0, back, N, MPI_INT, &status));
    CHECK(told(file, "rfs_read_kept") == kept);
    OK(MPI_File_read_at(file, 8, back, N - 8, MPI_BYTE, &status));
    CHECK(told(file, "rfs_read_kept") == kept + N - 8);
    CHECK(told(file, "rfs_read_ahead") == ahead);
    OK(MPI_File_close(&file));
    MPI_Info_set(info, "rfs_prefetch", "true");
    OK(MPI_File_open(MPI_COMM_WORLD, name, MPI_MODE_RDONLY, info, &file));
    /* It comes some time, without a read. */
    while (told(file, "rfs_read_ahead") == ahead)
        ;
    CHECK(told(file, "rfs_read_ahead") == ahead + sizeof values);
    CHECK(told(file, "rfs_read_kept") == kept + N - 8);
    OK(MPI_File_read_at(file, 0, back, N, MPI_INT, &status));
    CHECK(told(file, "rfs_read_kept") == kept + N - 8 + sizeof values);
    MPI_Info_free(&info);
    OK(MPI_File_close(&file));
}

static MPI_File failed_file;
static int failed_class;

static void on_error(MPI_File *file, int *code, ...)
{
    failed_file = *file;
    failed_class = class_of(*code);
}

static void handlers(void)
{
    MPI_File file = open_as(MPI_MODE_RDONLY), none;
    MPI_Errhandler handler, found;
    MPI_Status status;
    int value = 1, length = 0;
    char text[MPI_MAX_ERROR_STRING] = "";
    MPI_File_create_errhandler(on_error, &handler);
    OK(MPI_File_get_errhandler(file, &found));
    CHECK(found == MPI_ERRORS_RETURN);
    OK(MPI_File_set_errhandler(file, handler));
    MPI_File_write_at(file, 0, &value, 1, MPI_INT, &status);
    CHECK(failed_class == MPI_ERR_READ_ONLY);
    CHECK(failed_file == file);
    failed_class = 0;
    OK(MPI_File_call_errhandler(file, MPI_ERR_IO));
    CHECK(failed_class == MPI_ERR_IO);
    OK(MPI_File_close(&file));
    if (rank == 0)
        OK(MPI_File_delete(name, MPI_INFO_NULL));
    together();
    int code = MPI_File_open(MPI_COMM_WORLD, name, MPI_MODE_RDONLY, MPI_INFO_NULL, &none);
    MPI_Error_string(code, text, &length);
    CHECK(length > 0);
    /* Errors without a file go to the handler of MPI_FILE_NULL. */
    OK(MPI_File_set_errhandler(MPI_FILE_NULL, handler));
    failed_class = 0;
    STRICT(FAILS(MPI_ERR_NO_SUCH_FILE,
                 MPI_File_open(MPI_COMM_WORLD, name, MPI_MODE_RDONLY, MPI_INFO_NULL, &none)));
    STRICT(CHECK(failed_class == MPI_ERR_NO_SUCH_FILE));
    OK(MPI_File_set_errhandler(MPI_FILE_NULL, MPI_ERRORS_RETURN));
    MPI_Errhandler_free(&handler);
}

static void handles(void)
{
    MPI_File file = fresh(), second = fresh();
    int flag = -1;
    CHECK(file != second);
#ifdef MPI_ABI
    CHECK(MPI_File_fromint(MPI_File_toint(file)) == file);
#else
    CHECK(MPI_File_f2c(MPI_File_c2f(file)) == file);
#endif
    OK(MPI_File_get_atomicity(file, &flag));
    CHECK(flag == 0);
    OK(MPI_File_set_atomicity(file, 1));
    OK(MPI_File_get_atomicity(file, &flag));
    CHECK(flag == 1);
    OK(MPI_File_get_atomicity(second, &flag));
    CHECK(flag == 0);
    /* In atomic mode no sync is needed, only an order. */
    int value = 4711, back = 0;
    if (rank == 0)
        OK(MPI_File_write_at(file, 0, &value, 4, MPI_BYTE, MPI_STATUS_IGNORE));
    together();
    OK(MPI_File_read_at(file, 0, &back, 4, MPI_BYTE, MPI_STATUS_IGNORE));
    CHECK(back == value);
    OK(MPI_File_close(&second));
    OK(MPI_File_close(&file));
}

static int copies;

static int on_copy(MPI_Comm comm, int key, void *extra, void *value, void *copy, int *is_copied)
{
    (void)comm, (void)key, (void)extra, (void)value, (void)copy;
    copies++;
    *is_copied = 0;
    return MPI_SUCCESS;
}

/* What a program keeps with its communicator is not copied to that of the file: no function of the
 * program runs while a file is opened. */
static void attributes(void)
{
    int key;
    OK(MPI_Comm_create_keyval(on_copy, MPI_COMM_NULL_DELETE_FN, &key, NULL));
    OK(MPI_Comm_set_attr(MPI_COMM_WORLD, key, &copies));
    MPI_File file = fresh();
    STRICT(CHECK(copies == 0));
    OK(MPI_File_close(&file));
    OK(MPI_Comm_delete_attr(MPI_COMM_WORLD, key));
    OK(MPI_Comm_free_keyval(&key));
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &processes);
    if (argc != 2)
        MPI_Abort(MPI_COMM_WORLD, 2);
    name = argv[1];
    is_remote = strncmp(name, "rfs:", 4) == 0 || strncmp(name, "abt:", 4) == 0;
    opening();
    sizes();
    independent();
    views();
    collective();
    nonblocking();
    split();
#if MPI_VERSION >= 4
    large();
#endif
    shared();
    ordered();
    amodes();
    hints();
    STRICT(counters());
    handlers();
    handles();
    attributes();
    int result = report("conf");
    MPI_Finalize();
    return result;
}
