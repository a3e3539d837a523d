/* Random sequences of MPI-IO calls beside a model of the file: random NAME DIRECTORY FIRST COUNT.
 *
 * Each of COUNT seeds from FIRST on is a sequence: views of random datatypes; reads and writes at
 * all kinds of positions, collective or not, blocking, nonblocking and split; seeks; sizes; atomic
 * mode; sync, barrier, sync. All processes draw the same numbers, so each knows what the others do,
 * and what the file must hold: the model has no MPI-IO. What one process reads and another writes
 * is apart by a sync point. At the end the file, which the server has in DIRECTORY, is read without
 * MPI.
 */
#include "random_types.h"

/* Bytes of the file that are used; accesses of a sequence; bytes of an access. */
enum { LIMIT = 1 << 15, CALLS = 40, BYTES = 600 };

enum { PROCESSES = 4 };

struct view {
    int displacement, size, extent;
    MPI_Datatype filetype;
    /* For each byte of the filetype in the order of the stream: its place. */
    int *places;
};

static struct {
    unsigned char bytes[LIMIT];
    int size;
    /* Since the last sync point: who wrote a byte (0: nobody), and a bit for each who read it. */
    unsigned char writer[LIMIT], readers[LIMIT];
    /* The size at that point; a bit for each who has seen the end of the file since. */
    int old_size, end_readers;
} model;

static MPI_File file;
static struct view views[PROCESSES];
static MPI_Datatype etype;
static int etype_bytes, is_common, is_atomic, pointers[PROCESSES], shared_pointer;

/* Of the sequence, and of the call: every failure names them. */
static unsigned long long sequence;
static unsigned call_number;

#define SAME(found, wanted)                                                                    \
    do {                                                                                       \
        long long is_now = (found), must_be = (wanted);                                        \
        check_count++;                                                                         \
        if (is_now != must_be && failure_count++ < 5)                                          \
            fprintf(stderr, "seed %llu, call %u, rank %d of %d, line %d: %s is %lld, not %lld\n", \
                    sequence, call_number, rank, processes, __LINE__, #found, is_now, must_be); \
    } while (0)

#define GOOD(call) SAME(class_of(call), MPI_SUCCESS)

static int place_of(const struct view *view, int position)
{
    return view->displacement + position / view->size * view->extent +
           view->places[position % view->size];
}

/* What was written is seen by all from here on. */
static void sync_point(void)
{
    if (!is_atomic)
        GOOD(MPI_File_sync(file));
    MPI_Barrier(MPI_COMM_WORLD);
    if (!is_atomic)
        GOOD(MPI_File_sync(file));
    memset(model.writer, 0, sizeof model.writer);
    memset(model.readers, 0, sizeof model.readers);
    model.old_size = model.size;
    model.end_readers = 0;
}

/* What a process does in a call. */
struct part {
    int position, bytes;
};

static int last_of(int of, struct part part)
{
    return place_of(&views[of], part.position + part.bytes - 1);
}

/* Whether a process may do this without a sync point before. */
static int is_free(int of, struct part part, int is_write)
{
    if (part.bytes == 0)
        return 1;
    int is_end_moved = last_of(of, part) >= model.size && model.end_readers & ~(1 << of);
    if (is_write ? is_end_moved : model.size != model.old_size)
        return 0;
    for (int i = part.position; i < part.position + part.bytes; i++) {
        int at = place_of(&views[of], i);
        if (model.writer[at] != 0 && model.writer[at] != of + 1)
            return 0;
        if (is_write && model.readers[at] & ~(1 << of))
            return 0;
    }
    return 1;
}

static void note(int of, struct part part, int is_write)
{
    for (int i = part.position; i < part.position + part.bytes; i++) {
        int at = place_of(&views[of], i);
        if (is_write)
            model.writer[at] = (unsigned char)(of + 1);
        else
            model.readers[at] |= (unsigned char)(1 << of);
        if (!is_write && at >= model.size)
            model.end_readers |= 1 << of;
    }
}

static unsigned char data_of(int of, int index)
{
    uint64_t key = (sequence * 1000003 + call_number) * 8191 + (unsigned)of;
    return (unsigned char)(((key * 65599 + (unsigned)index) * 0x9e3779b97f4a7c15u) >> 56);
}

/* How many bytes a process finds before the end of the file. */
static int found_by(int of, struct part part)
{
    int count = 0;
    while (count < part.bytes && place_of(&views[of], part.position + count) < model.size)
        count++;
    return count;
}

static void write_model(int of, struct part part)
{
    for (int i = 0; i < part.bytes; i++) {
        int at = place_of(&views[of], part.position + i);
        model.bytes[at] = data_of(of, i);
        model.size = at >= model.size ? at + 1 : model.size;
    }
}

/* Memory of a call: pieces at random places, in any order. */
struct memory {
    unsigned char bytes[8 * BYTES];
    int count;
    MPI_Datatype type;
};

static void lay_out(struct memory *memory, int bytes)
{
    int lengths[4], order[4] = {0, 1, 2, 3}, pieces = 1 + (int)below(4), left, at = 0;
    MPI_Aint places[4], sorted[4];
    memory->count = bytes % 3 == 0 && below(2) ? 3 : 1;
    left = bytes / memory->count;
    for (int i = 0; i < pieces; i++) {
        lengths[i] = i + 1 == pieces ? left : (int)below((unsigned)left + 1);
        left -= lengths[i];
    }
    for (int i = 0; i < pieces; i++) {
        int other = i + (int)below((unsigned)(pieces - i)), kept = order[i];
        order[i] = order[other];
        order[other] = kept;
    }
    for (int i = 0; i < pieces; i++) {
        sorted[i] = at + (int)below(20);
        at = (int)sorted[i] + lengths[order[i]];
        places[order[i]] = sorted[i];
    }
    MPI_Datatype parts;
    MPI_Type_create_hindexed(pieces, lengths, places, MPI_BYTE, &parts);
    MPI_Type_create_resized(parts, 0, at + (int)below(9), &memory->type);
    MPI_Type_free(&parts);
    MPI_Type_commit(&memory->type);
}

enum place { EXPLICIT, INDIVIDUAL, SHARED, ORDERED };
enum form { PLAIN, NONBLOCKING, TOGETHER, NONBLOCKING_TOGETHER, SPLIT, FORMS };

#define EITHER(before, after, ...)                                                             \
    GOOD(is_write ? MPI_File_##before##write##after(__VA_ARGS__)                               \
                  : MPI_File_##before##read##after(__VA_ARGS__))

static void finish(MPI_Request *request, MPI_Status *status)
{
    int is_done = 0;
    if (call_number % 2) {
        GOOD(MPI_Wait(request, status));
        return;
    }
    while (!is_done)
        GOOD(MPI_Test(request, &is_done, status));
}

static void call(enum place place, enum form form, int is_write, int offset, void *data, int count,
                 MPI_Datatype type, MPI_Status *status)
{
    MPI_Request request;
    switch (place * FORMS + form) {
    case EXPLICIT * FORMS + PLAIN:
        EITHER(, _at, file, offset, data, count, type, status);
        break;
    case EXPLICIT * FORMS + NONBLOCKING:
        EITHER(i, _at, file, offset, data, count, type, &request);
        finish(&request, status);
        break;
    case EXPLICIT * FORMS + TOGETHER:
        EITHER(, _at_all, file, offset, data, count, type, status);
        break;
    case EXPLICIT * FORMS + NONBLOCKING_TOGETHER:
        EITHER(i, _at_all, file, offset, data, count, type, &request);
        finish(&request, status);
        break;
    case EXPLICIT * FORMS + SPLIT:
        EITHER(, _at_all_begin, file, offset, data, count, type);
        EITHER(, _at_all_end, file, data, status);
        break;
    case INDIVIDUAL * FORMS + PLAIN:
        EITHER(, , file, data, count, type, status);
        break;
    case INDIVIDUAL * FORMS + NONBLOCKING:
        EITHER(i, , file, data, count, type, &request);
        finish(&request, status);
        break;
    case INDIVIDUAL * FORMS + TOGETHER:
        EITHER(, _all, file, data, count, type, status);
        break;
    case INDIVIDUAL * FORMS + NONBLOCKING_TOGETHER:
        EITHER(i, _all, file, data, count, type, &request);
        finish(&request, status);
        break;
    case INDIVIDUAL * FORMS + SPLIT:
        EITHER(, _all_begin, file, data, count, type);
        EITHER(, _all_end, file, data, status);
        break;
    case SHARED * FORMS + PLAIN:
        EITHER(, _shared, file, data, count, type, status);
        break;
    case SHARED * FORMS + NONBLOCKING:
        EITHER(i, _shared, file, data, count, type, &request);
        finish(&request, status);
        break;
    case ORDERED * FORMS + TOGETHER:
        EITHER(, _ordered, file, data, count, type, status);
        break;
    case ORDERED * FORMS + SPLIT:
        EITHER(, _ordered_begin, file, data, count, type);
        EITHER(, _ordered_end, file, data, status);
        break;
    }
}

/* This process's part of a call, and whether it is what the model says. `found`: bytes that it must
 * get. */
static void own_part(enum place place, enum form form, int is_write, struct part part, int found)
{
    struct memory memory;
    unsigned char packed[BYTES + 1], back[BYTES + 1];
    MPI_Status status;
    uint64_t common = state;
    int at = 0;
    seed(sequence * 4096 + call_number * 4 + (unsigned)rank);
    lay_out(&memory, part.bytes);
    state = common;
    memset(memory.bytes, 0x55, sizeof memory.bytes);
    memset(packed, 0x55, sizeof packed);
    for (int i = 0; is_write && i < part.bytes; i++)
        packed[i] = data_of(rank, i);
    for (int i = 0; !is_write && i < found; i++)
        packed[i] = model.bytes[place_of(&views[rank], part.position + i)];
    if (is_write)
        MPI_Unpack(packed, part.bytes, &at, memory.bytes, memory.count, memory.type, MPI_COMM_SELF);
    call(place, form, is_write, part.position / etype_bytes, memory.bytes, memory.count,
         memory.type, &status);
    SAME(bytes_of(&status), found);
    at = 0;
    MPI_Pack(memory.bytes, memory.count, memory.type, back, part.bytes, &at, MPI_COMM_SELF);
    SAME(memcmp(packed, back, (size_t)part.bytes), 0);
    MPI_Type_free(&memory.type);
}

/* The position at which a process begins, and how the pointers are moved. */
static int begin_of(enum place place, int of, int before)
{
    if (place == EXPLICIT)
        return (int)below(1200) * etype_bytes;
    return place == INDIVIDUAL ? pointers[of] : shared_pointer + before;
}

/* Whether one process alone does it. */
static int is_alone(enum form form)
{
    return form == PLAIN || form == NONBLOCKING;
}

/* What each process does: less than it might, where that would be beyond the limit, or where others
 * do something with the same bytes. */
static void choose(enum place place, enum form form, int is_write, struct part *parts)
{
    int who = (int)below((unsigned)processes), before = 0, is_needed = 0;
    for (int of = 0; of < processes; of++) {
        int wanted = (int)below(BYTES / 4) * etype_bytes;
        parts[of].position = begin_of(place, of, before);
        parts[of].bytes = is_alone(form) && of != who ? 0 : wanted;
        if (parts[of].bytes > 0 && last_of(of, parts[of]) >= LIMIT)
            parts[of].bytes = 0;
        /* How far a shared pointer goes when the file ends is not said. */
        int is_short = !is_write && found_by(of, parts[of]) < parts[of].bytes;
        if (place >= SHARED && is_short)
            parts[of].bytes = 0;
        before += parts[of].bytes;
        is_needed |= !is_free(of, parts[of], is_write);
    }
    if (is_needed || place == SHARED)
        sync_point();
    before = 0;
    for (int of = 0; of < processes; of++) {
        /* Others may do less than they wanted to. */
        if (place == ORDERED)
            parts[of].position = shared_pointer + before;
        if (!is_free(of, parts[of], is_write))
            parts[of].bytes = 0;
        note(of, parts[of], is_write);
        before += parts[of].bytes;
    }
}

static void seek_to(int of, int position)
{
    pointers[of] = position;
    if (of == rank)
        GOOD(MPI_File_seek(file, position / etype_bytes, MPI_SEEK_SET));
}

static void access_file(enum place place)
{
    static const enum form shared_forms[2] = {PLAIN, NONBLOCKING};
    static const enum form ordered_forms[2] = {TOGETHER, SPLIT};
    enum form form = place == SHARED    ? shared_forms[below(2)]
                     : place == ORDERED ? ordered_forms[below(2)]
                                        : (enum form)below(FORMS);
    int is_write = below(5) < 3, found[PROCESSES], all = 0;
    MPI_Offset at;
    struct part parts[PROCESSES];
    choose(place, form, is_write, parts);
    for (int of = 0; of < processes; of++)
        found[of] = is_write ? parts[of].bytes : found_by(of, parts[of]);
    if (parts[rank].bytes > 0 || !is_alone(form))
        own_part(place, form, is_write, parts[rank], found[rank]);
    for (int of = 0; of < processes; of++) {
        if (is_write)
            write_model(of, parts[of]);
        all += parts[of].bytes;
        if (place == INDIVIDUAL)
            pointers[of] += found[of];
        if (of == rank) {
            GOOD(MPI_File_get_position(file, &at));
            SAME(at, pointers[of] / etype_bytes);
        }
        /* The end of the file may lie in an etype. */
        if (place == INDIVIDUAL && found[of] < parts[of].bytes)
            seek_to(of, (int)below(500) * etype_bytes);
    }
    if (place >= SHARED)
        shared_pointer += all;
    if (place == SHARED)
        sync_point();
}

static void view_free(struct view *view)
{
    if (view->filetype != MPI_BYTE)
        MPI_Type_free(&view->filetype);
    free(view->places);
    view->places = NULL;
}

static struct view view_of(MPI_Datatype filetype, int displacement)
{
    MPI_Aint begin, extent;
    struct view view = {.displacement = displacement, .filetype = filetype};
    MPI_Type_size(filetype, &view.size);
    MPI_Type_get_extent(filetype, &begin, &extent);
    view.extent = (int)extent;
    view.places = malloc((size_t)view.size * sizeof *view.places);
    int32_t *positions = places_of(filetype, extent, view.size);
    for (int i = 0; i < view.extent; i++)
        if (positions[i] >= 0)
            view.places[positions[i]] = i;
    free(positions);
    return view;
}

static MPI_Datatype random_filetype(void)
{
    for (;;) {
        MPI_Datatype type = random_type(1024);
        int size;
        MPI_Type_size(type, &size);
        if (size % etype_bytes == 0)
            return type;
        MPI_Type_free(&type);
    }
}

static void set_view(void)
{
    static const MPI_Datatype etypes[3] = {MPI_BYTE, MPI_SHORT, MPI_INT};
    etype = etypes[below(3)];
    MPI_Type_size(etype, &etype_bytes);
    is_common = below(2);
    for (int of = 0; of < processes; of++) {
        int displacement = of > 0 && is_common ? views[0].displacement : (int)below(600);
        view_free(&views[of]);
        if (of > 0 && is_common) {
            MPI_Datatype copy;
            MPI_Type_dup(views[0].filetype, &copy);
            views[of] = view_of(copy, displacement);
        } else {
            views[of] = view_of(random_filetype(), displacement);
        }
        pointers[of] = 0;
    }
    shared_pointer = 0;
    sync_point();
    GOOD(MPI_File_set_view(file, views[rank].displacement, etype, views[rank].filetype, "native",
                           MPI_INFO_NULL));
    sync_point();
}

/* The first position at the end of the file or behind it, in whole etypes. */
static int end_of(const struct view *view)
{
    int end = 0;
    while (place_of(view, end) < model.size)
        end++;
    return (end + etype_bytes - 1) / etype_bytes * etype_bytes;
}

static void seek(void)
{
    MPI_Offset at;
    sync_point();
    for (int of = 0; of < processes; of++) {
        int whence = (int)below(3), by = (int)below(300) * etype_bytes, end = end_of(&views[of]);
        int from = whence == 0 ? 0 : whence == 1 ? pointers[of] : end;
        int back = below(2) && by <= from ? -by : by;
        static const int ways[3] = {MPI_SEEK_SET, MPI_SEEK_CUR, MPI_SEEK_END};
        if (of == rank)
            GOOD(MPI_File_seek(file, back / etype_bytes, ways[whence]));
        pointers[of] = from + back;
    }
    if (is_common) {
        shared_pointer = (int)below(300) * etype_bytes;
        GOOD(MPI_File_seek_shared(file, shared_pointer / etype_bytes, MPI_SEEK_SET));
        GOOD(MPI_File_get_position_shared(file, &at));
        SAME(at * etype_bytes, shared_pointer);
    }
    GOOD(MPI_File_get_position(file, &at));
    SAME(at * etype_bytes, pointers[rank]);
    /* Nobody moves the end of the file before all have looked for it, nor the shared pointer. */
    MPI_Barrier(MPI_COMM_WORLD);
}

static void resize(void)
{
    int size = (int)below(LIMIT / 2), is_reserved = below(2);
    MPI_Offset found;
    sync_point();
    GOOD(is_reserved ? MPI_File_preallocate(file, size) : MPI_File_set_size(file, size));
    if (!is_reserved && size < model.size)
        memset(model.bytes + size, 0, (size_t)(model.size - size));
    model.size = is_reserved && size < model.size ? model.size : size;
    sync_point();
    GOOD(MPI_File_get_size(file, &found));
    SAME(found, model.size);
    MPI_Barrier(MPI_COMM_WORLD);
}

static void change_atomicity(void)
{
    sync_point();
    is_atomic = !is_atomic;
    GOOD(MPI_File_set_atomicity(file, is_atomic));
    sync_point();
}

static void open_again(const char *name)
{
    if (file != MPI_FILE_NULL)
        GOOD(MPI_File_close(&file));
    GOOD(MPI_File_open(MPI_COMM_WORLD, name, MPI_MODE_RDWR | MPI_MODE_CREATE, MPI_INFO_NULL,
                       &file));
    etype = MPI_BYTE;
    etype_bytes = 1;
    is_common = 1;
    is_atomic = 0;
    shared_pointer = 0;
    for (int of = 0; of < PROCESSES; of++) {
        view_free(&views[of]);
        views[of] = view_of(MPI_BYTE, 0);
        pointers[of] = 0;
    }
    sync_point();
}

static void one_call(const char *name)
{
    unsigned what = below(100);
    if (what < 28)
        access_file(EXPLICIT);
    else if (what < 56)
        access_file(INDIVIDUAL);
    else if (what < 66 && is_common)
        access_file(SHARED);
    else if (what < 78 && is_common)
        access_file(ORDERED);
    else if (what < 86)
        set_view();
    else if (what < 91)
        seek();
    else if (what < 94)
        resize();
    else if (what < 96)
        change_atomicity();
    else if (what < 97)
        open_again(name);
    else
        sync_point();
}

/* Without MPI. */
static void compare(const char *path)
{
    static unsigned char found[LIMIT + 1];
    FILE *at_server = fopen(path, "rb");
    SAME(at_server != NULL, 1);
    if (!at_server)
        return;
    SAME(fread(found, 1, sizeof found, at_server), model.size);
    int at = 0;
    while (at < model.size && found[at] == model.bytes[at])
        at++;
    SAME(at, model.size);
    fclose(at_server);
}

static void play(const char *name, const char *path)
{
    memset(&model, 0, sizeof model);
    seed(sequence);
    call_number = 0;
    open_again(name);
    GOOD(MPI_File_set_size(file, 0));
    sync_point();
    for (call_number = 1; call_number <= CALLS; call_number++)
        one_call(name);
    GOOD(MPI_File_close(&file));
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0)
        compare(path);
    MPI_Barrier(MPI_COMM_WORLD);
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &processes);
    if (argc != 5 || processes > PROCESSES)
        MPI_Abort(MPI_COMM_WORLD, 2);
    char name[4096], path[4096];
    unsigned long long first = strtoull(argv[3], NULL, 0), count = strtoull(argv[4], NULL, 0);
    for (int of = 0; of < PROCESSES; of++)
        views[of].filetype = MPI_BYTE;
    file = MPI_FILE_NULL;
    for (sequence = first; sequence < first + count; sequence++) {
        snprintf(name, sizeof name, "%s.%llu", argv[1], sequence % 8);
        snprintf(path, sizeof path, "%s.%llu", argv[2], sequence % 8);
        play(name, path);
    }
    int result = report("random");
    MPI_Finalize();
    return result;
}
