/* Errors as the program sees them: a class of MPI, with a text where there is one, given to the
 * error handler of the file.
 */
#include "shim.h"
#include <stdio.h>

/* Codes with a text of their own. The MPI keeps each for ever, so there is a limit. MPICH 4.0 and 5.0
 * have no text for a code of a predefined class, and show one that means something else: so the
 * texts are kept here, and MPI_Error_string is answered for these codes. */
#define CODES_MAX 64

static struct code {
    int class, code;
    char text[MPI_MAX_ERROR_STRING];
} codes[CODES_MAX];
static int code_count;
static pthread_mutex_t codes_lock = PTHREAD_MUTEX_INITIALIZER;

/* What the last function of rfs.h gave on this thread: only an error of its own has its text. */
static __thread int last_class;

/* The class that the MPI gives for a filetype that goes back, or that overlaps in a file open for writing. */
#if defined OMPI_MAJOR_VERSION
#define FILETYPE_CLASS MPI_ERR_TYPE
#else
#define FILETYPE_CLASS MPI_ERR_IO
#endif

static int class_of(int rfs_error)
{
    switch (rfs_error) {
    case RFS_OK: return MPI_SUCCESS;
    case RFS_ERR_ARG: return MPI_ERR_ARG;
    case RFS_ERR_FILE: return MPI_ERR_FILE;
    case RFS_ERR_AMODE: return MPI_ERR_AMODE;
    case RFS_ERR_BAD_FILE: return MPI_ERR_BAD_FILE;
    case RFS_ERR_NO_SUCH_FILE: return MPI_ERR_NO_SUCH_FILE;
    case RFS_ERR_FILE_EXISTS: return MPI_ERR_FILE_EXISTS;
    case RFS_ERR_FILE_IN_USE: return MPI_ERR_FILE_IN_USE;
    case RFS_ERR_ACCESS: return MPI_ERR_ACCESS;
    case RFS_ERR_NO_SPACE: return MPI_ERR_NO_SPACE;
    case RFS_ERR_QUOTA: return MPI_ERR_QUOTA;
    case RFS_ERR_READ_ONLY: return MPI_ERR_READ_ONLY;
    case RFS_ERR_IO: return MPI_ERR_IO;
    case RFS_ERR_NO_MEM: return MPI_ERR_NO_MEM;
    case RFS_ERR_FILETYPE: return FILETYPE_CLASS;
    case RFS_ERR_UNSUPPORTED_OPERATION: return MPI_ERR_UNSUPPORTED_OPERATION;
    default: return MPI_ERR_OTHER;
    }
}

int shim_class(int rfs_error)
{
    last_class = class_of(rfs_error);
    return last_class;
}

const char *shim_text(int class)
{
    return class != MPI_SUCCESS && class == last_class ? rfs_message() : NULL;
}

/* The code with this text; the class alone if there are too many. */
static int code_of(int class, const char *text)
{
    if (!text || !*text)
        return class;
    char cut[MPI_MAX_ERROR_STRING];
    snprintf(cut, sizeof cut, "%s", text);
    pthread_mutex_lock(&codes_lock);
    int code = class;
    int i = 0;
    while (i < code_count && (codes[i].class != class || strcmp(codes[i].text, cut) != 0))
        i++;
    if (i < code_count) {
        code = codes[i].code;
    } else if (i < CODES_MAX && PMPI_Add_error_code(class, &code) == MPI_SUCCESS) {
        codes[i].class = class;
        codes[i].code = code;
        strcpy(codes[i].text, cut);
        code_count++;
    }
    pthread_mutex_unlock(&codes_lock);
    return code;
}

static int is_fatal(MPI_Errhandler handler)
{
#if MPI_VERSION >= 4
    if (handler == MPI_ERRORS_ABORT)
        return 1;
#endif
    return handler == MPI_ERRORS_ARE_FATAL;
}

int MPI_Error_string(int code, char *text, int *length)
{
    pthread_mutex_lock(&codes_lock);
    int i = 0;
    while (i < code_count && codes[i].code != code)
        i++;
    int is_ours = i < code_count;
    pthread_mutex_unlock(&codes_lock);
    if (!is_ours)
        return REAL(Error_string)(code, text, length);
    strcpy(text, codes[i].text);
    *length = (int)strlen(text);
    return MPI_SUCCESS;
}
ALSO_PMPI(Error_string);

void shim_complain(const char *text)
{
    fprintf(stderr, "rfs: %s\n", text && *text ? text : "a remote file cannot be used");
}

/* MPICH 4 returns the code that an error handler has changed; MPICH 5 and Open MPI the one that it got. The
 * functions of the program's handlers are known from here: MPI_File_call_errhandler does not return the
 * code. */
#if !defined OMPI_MAJOR_VERSION
struct handler {
    struct handler *next;
    MPI_Errhandler handle;
    MPI_File_errhandler_function *function;
};
static struct handler *handlers;
static pthread_mutex_t handlers_lock = PTHREAD_MUTEX_INITIALIZER;

/* Whether code is in the library that has the Fortran interface of the MPI: the handlers that it makes are
 * Fortran's, with other arguments. */
static int is_fortran(const void *code)
{
    Dl_info found;
    return dladdr(code, &found) && found.dli_fname && strstr(found.dli_fname, "fort");
}

static void remember(MPI_Errhandler handle, MPI_File_errhandler_function *function)
{
    pthread_mutex_lock(&handlers_lock);
    struct handler *known = handlers;
    while (known && known->handle != handle)
        known = known->next;
    if (!known && function && (known = calloc(1, sizeof *known))) {
        known->next = handlers;
        known->handle = handle;
        handlers = known;
    }
    /* The MPI uses the number of a handler again that is not used any more. */
    if (known)
        known->function = function;
    pthread_mutex_unlock(&handlers_lock);
}

int MPI_File_create_errhandler(MPI_File_errhandler_function *function, MPI_Errhandler *handle)
{
    int code = REAL(File_create_errhandler)(function, handle);
    if (code == MPI_SUCCESS)
        remember(*handle, is_fortran(__builtin_return_address(0)) ? NULL : function);
    return code;
}
ALSO_PMPI(File_create_errhandler);

static MPI_File_errhandler_function *function_of(MPI_Errhandler handle)
{
    pthread_mutex_lock(&handlers_lock);
    struct handler *known = handlers;
    while (known && known->handle != handle)
        known = known->next;
    MPI_File_errhandler_function *function = known ? known->function : NULL;
    pthread_mutex_unlock(&handlers_lock);
    return function;
}

static void change(MPI_File *file, int *code, ...)
{
    (void)file;
    *code = MPI_ERR_QUOTA;
}

/* Whether the library returns the code that a handler has changed: tried once, on a file of its own. */
static int try_handler(void)
{
    MPI_File file;
    MPI_Errhandler handler;
    if (shim_proxy_open(&file) != MPI_SUCCESS)
        return 0;
    /* A file begins with the default handler, for which MPICH takes no reference, but MPICH releases one when
     * another handler is set: the one that this function takes. */
    PMPI_File_get_errhandler(MPI_FILE_NULL, &handler);
    REAL(File_create_errhandler)(change, &handler);
    PMPI_File_set_errhandler(file, handler);
    int class = REAL(File_seek)(file, -1, MPI_SEEK_SET);
    PMPI_Error_class(class, &class);
    PMPI_Errhandler_free(&handler);
    REAL(File_close)(&file);
    return class == MPI_ERR_QUOTA;
}

static int returns_changed(void)
{
    static enum { UNTRIED, NO, YES } answer;
    pthread_mutex_lock(&handlers_lock);
    if (answer == UNTRIED)
        answer = try_handler() ? YES : NO;
    pthread_mutex_unlock(&handlers_lock);
    return answer == YES;
}
#else
static MPI_File_errhandler_function *function_of(MPI_Errhandler handle)
{
    (void)handle;
    return NULL;
}

static int returns_changed(void)
{
    return 0;
}
#endif

/* Calls a function of the program that handles errors. Returns the code for the program. */
static int handled_by(MPI_File_errhandler_function *function, MPI_File handle, int code)
{
    int changed = code;
    function(&handle, &changed);
    return returns_changed() ? changed : code;
}

/* The error handler of a file. */
static MPI_Errhandler handler_of(MPI_File handle)
{
    MPI_Errhandler handler = MPI_ERRORS_RETURN;
    PMPI_File_get_errhandler(handle, &handler);
    return handler;
}

/* Gives back what handler_of() returned. */
static void release(MPI_Errhandler handler)
{
    if (handler != MPI_ERRORS_RETURN && !is_fatal(handler))
        PMPI_Errhandler_free(&handler);
}

int shim_fail(struct shim_file *file, int class, const char *text)
{
    if (class == MPI_SUCCESS)
        return MPI_SUCCESS;
    MPI_Errhandler handler = handler_of(file->handle);
    MPI_File_errhandler_function *function = function_of(handler);
    if (is_fatal(handler)) {
        /* The library prints what it knows of the class, and ends the program. */
        shim_complain(text);
        PMPI_File_call_errhandler(file->handle, class);
    }
    int code = code_of(class, text);
    if (function)
        code = handled_by(function, file->handle, code);
    else
        PMPI_File_call_errhandler(file->handle, code);
    release(handler);
    return code;
}

int shim_fail_together(struct shim_file *file, int own, const char *own_text)
{
    char text[MPI_MAX_ERROR_STRING];
    int class = shim_agree_text(file->comm, own, own_text, text);
    return shim_fail(file, class, text);
}

/* The handler of MPI_FILE_NULL is for errors without a file, but Open MPI 4.1 does not let one call
 * it. So a handler of the program is reached by an error of the library's own. */
static void provoke(void)
{
    MPI_File none;
    REAL(File_open)(MPI_COMM_SELF, "/nonexistent/rfs", MPI_MODE_RDONLY, MPI_INFO_NULL, &none);
}

int shim_fail_without_file(int class, const char *text)
{
    if (class == MPI_SUCCESS)
        return MPI_SUCCESS;
    int code = code_of(class, text);
    MPI_Errhandler handler = handler_of(MPI_FILE_NULL);
    MPI_File_errhandler_function *function = function_of(handler);
    if (is_fatal(handler)) {
        shim_complain(text);
        PMPI_Abort(MPI_COMM_WORLD, class);
    }
    if (function)
        code = handled_by(function, MPI_FILE_NULL, code);
    else if (handler != MPI_ERRORS_RETURN)
        provoke();
    release(handler);
    return code;
}
