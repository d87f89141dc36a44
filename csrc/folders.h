/* Listing folders: names together with what tells one version of a file from another, many at a time.
 *
 * `os.scandir` makes two objects for each file and goes back and forth between Python and the
 * system for each; that is as long as what the system itself takes.
 */

#if defined(__linux__)

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

enum {
    LISTED = 1 << 15,                     /* bytes that the system fills with entries */
    SHORTEST = 24,                        /* of these an entry has at least */
    MOST_LISTED = LISTED / SHORTEST + 1,
    NANOSECONDS = 1000000000,
};

/* What the system writes for each entry (getdents64(2)). */
struct entry {
    uint64_t inode;
    int64_t next;
    uint16_t length;
    uint8_t type;
    char name[];
};

/* What is told of a regular file; eight bytes each, in this order. */
struct facts {
    uint64_t size;
    int64_t mtime_ns, ctime_ns;
    uint64_t inode;
};

enum kind { IS_FILE, IS_FOLDER, IS_OTHER };

struct listing {
    _Alignas(8) char entries[LISTED];
    size_t length, count, files;
    uint8_t kinds[MOST_LISTED];
    struct facts facts[MOST_LISTED];
};

/* Whether a time has as many nanoseconds as 64 bits hold. */
static int put_time(struct timespec time, int64_t *ns)
{
    int64_t seconds = time.tv_sec, limit = INT64_MAX / NANOSECONDS - 1;
    if (seconds > limit || seconds < -limit)
        return 0;
    *ns = seconds * NANOSECONDS + time.tv_nsec;
    return 1;
}

/* Look at one entry; whatever is not plain is left to Python. */
static enum kind look_at_entry(int folder, const struct entry *entry, struct facts *facts)
{
    struct stat status;
    if (entry->type == DT_DIR)
        return IS_FOLDER;
    if (entry->type != DT_REG && entry->type != DT_UNKNOWN)
        return IS_OTHER;
    if (fstatat(folder, entry->name, &status, AT_SYMLINK_NOFOLLOW))
        return IS_OTHER;
    if (S_ISDIR(status.st_mode))
        return IS_FOLDER;
    if (!S_ISREG(status.st_mode) || !put_time(status.st_mtim, &facts->mtime_ns) ||
        !put_time(status.st_ctim, &facts->ctime_ns))
        return IS_OTHER;
    facts->size = (uint64_t) status.st_size;
    facts->inode = (uint64_t) status.st_ino;
    return IS_FILE;
}

static const struct entry *entry_at(const struct listing *listing, size_t *place)
{
    const struct entry *entry = (const struct entry *) (listing->entries + *place);
    *place += entry->length;
    return entry;
}

/* Read entries and look at them. Returns the system's error, 0 without. */
static int fill_listing(int folder, struct listing *listing)
{
    long length;
    do
        length = syscall(SYS_getdents64, folder, listing->entries, (size_t) LISTED);
    while (length < 0 && errno == EINTR);
    if (length < 0 && errno == ENOENT)
        length = 0;  /* the folder itself was removed */
    if (length < 0)
        return errno;
    listing->length = (size_t) length;
    for (size_t place = 0; place < listing->length;) {
        const struct entry *entry = entry_at(listing, &place);
        enum kind kind = look_at_entry(folder, entry, &listing->facts[listing->files]);
        listing->kinds[listing->count++] = (uint8_t) kind;
        listing->files += kind == IS_FILE;
    }
    return 0;
}

static int is_itself_or_parent(const char *name)
{
    return name[0] == '.' && (!name[1] || (name[1] == '.' && !name[2]));
}

/* Sort the names by kind. */
static PyObject *name_entries(const struct listing *listing)
{
    PyObject *names[3] = {PyList_New(0), PyList_New(0), PyList_New(0)}, *found = NULL;
    if (!names[0] || !names[1] || !names[2])
        goto end;
    for (size_t place = 0, index = 0; place < listing->length; index++) {
        const struct entry *entry = entry_at(listing, &place);
        if (is_itself_or_parent(entry->name))
            continue;
        PyObject *name = PyUnicode_DecodeFSDefault(entry->name);
        int failed = !name || PyList_Append(names[listing->kinds[index]], name);
        Py_XDECREF(name);
        if (failed)
            goto end;
    }
    found = Py_BuildValue("OOOy#", names[IS_FILE], names[IS_FOLDER], names[IS_OTHER],
                          (const char *) listing->facts,
                          (Py_ssize_t) (listing->files * sizeof(struct facts)));
end:
    for (int i = 0; i < 3; i++)
        Py_XDECREF(names[i]);
    return found;
}

static PyObject *list_folder(PyObject *module, PyObject *argument)
{
    (void) module;
    long folder = PyLong_AsLong(argument);
    if (folder == -1 && PyErr_Occurred())
        return NULL;
    struct listing *listing = PyMem_Malloc(sizeof *listing);
    if (!listing)
        return PyErr_NoMemory();
    listing->count = listing->files = 0;
    int error;
    Py_BEGIN_ALLOW_THREADS
    error = fill_listing((int) folder, listing);
    Py_END_ALLOW_THREADS
    PyObject *found = NULL;
    if (error) {
        errno = error;
        PyErr_SetFromErrno(PyExc_OSError);
    } else if (!listing->length) {
        found = Py_NewRef(Py_None);
    } else {
        found = name_entries(listing);
    }
    PyMem_Free(listing);
    return found;
}

#define LIST_FOLDER                                                                                \
    {"list_folder", list_folder, METH_O,                                                           \
     "list_folder(descriptor): names of files, of folders and of other entries that come next, and " \
     "of each file its size, mtime_ns, ctime_ns and inode; None at the end"},

#else
#define LIST_FOLDER
#endif
