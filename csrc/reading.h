/* Tensors read and measured in one go, while other threads run. For a whole tensor a thread waits
 * once for the interpreter, not twice for each block.
 *
 * What is not as expected (an error, a file that ends too soon) is not told apart here: the caller
 * reads again, block by block, and that says what it is.
 */

#if !defined(_WIN32)
#include <time.h>
#include <unistd.h>
#define READS_FILES

enum {
    GROUP = 1 << 20,  /* bytes that are summed up before their moments are merged: the buffer's */
    STEP = 1 << 17,   /* bytes of a block that stays in the processor's own cache */
    SLOW_NS = 500000, /* a group that takes longer than this was not in memory */
    UNHEARD = 1 << 26 /* bytes until signals are looked for, Ctrl-C above all */
};

enum outcome { READ_ALL, READ_MORE, READ_STOPPED, READ_FAILED };

/* Bytes of an open file that are still to be read, and how. */
struct reading {
    int descriptor;
    off_t offset;
    size_t left, done;
    size_t step;       /* bytes of a block */
    int64_t begun_ns;  /* when the group began */
    Py_buffer buffer;
};

/* Look at a block of the bytes that were read; not 0 where the rest does not matter any more. */
typedef int taker(void *state, const void *block, size_t nbytes, int ends_group);

/* Disks and servers want to be asked for much at a time, memory for no more than the cache holds. */
static void begin_group(struct reading *reading)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    int64_t now_ns = (int64_t) now.tv_sec * 1000000000 + now.tv_nsec;
    reading->step = now_ns - reading->begun_ns > SLOW_NS ? GROUP : STEP;
    reading->begun_ns = now_ns;
}

static enum outcome read_some(struct reading *reading, taker *take, void *state)
{
    size_t until = reading->left > UNHEARD ? reading->left - UNHEARD : 0;
    char *block = reading->buffer.buf;
    while (reading->left > until) {
        if (reading->done % GROUP == 0)
            begin_group(reading);
        size_t wanted = reading->left < reading->step ? reading->left : reading->step;
        for (size_t filled = 0; filled < wanted;) {
            ssize_t count = pread(reading->descriptor, block + filled, wanted - filled,
                                  reading->offset + (off_t) filled);
            if (count <= 0)
                return READ_FAILED;
            filled += (size_t) count;
        }
        reading->offset += (off_t) wanted;
        reading->left -= wanted;
        reading->done += wanted;
        if (take(state, block, wanted, !reading->left || reading->done % GROUP == 0))
            return READ_STOPPED;
    }
    return reading->left ? READ_MORE : READ_ALL;
}

/* Read all that is asked for; -1 where a signal raised an exception. */
static int read_through(struct reading *reading, taker *take, void *state)
{
    enum outcome outcome;
    do {
        Py_BEGIN_ALLOW_THREADS
        outcome = read_some(reading, take, state);
        Py_END_ALLOW_THREADS
        if (outcome == READ_MORE && PyErr_CheckSignals() < 0)
            return -1;
    } while (outcome == READ_MORE);
    return (int) outcome;
}

/* Of `count` numbers of `itemsize` bytes; the arguments are descriptor, offset and, last, buffer. */
static int open_reading(PyObject *const *arguments, PyObject *buffer, Py_ssize_t count,
                        Py_ssize_t itemsize, struct reading *reading)
{
    long descriptor = PyLong_AsLong(arguments[0]);
    long long offset = PyLong_AsLongLong(arguments[1]);
    if (PyErr_Occurred())
        return -1;
    if (descriptor < 0 || descriptor > INT32_MAX || offset < 0 || offset > INT64_MAX / 2
        || count <= 0 || count > PY_SSIZE_T_MAX / 2 / itemsize) {
        PyErr_SetString(PyExc_ValueError,
                        "expected a descriptor, an offset and a number of elements (at least one)");
        return -1;
    }
    if (PyObject_GetBuffer(buffer, &reading->buffer, PyBUF_WRITABLE) < 0)
        return -1;
    if (reading->buffer.len < GROUP) {
        PyErr_Format(PyExc_ValueError, "expected a buffer of %d bytes, found %zd", (int) GROUP,
                     reading->buffer.len);
        PyBuffer_Release(&reading->buffer);
        return -1;
    }
    reading->descriptor = (int) descriptor;
    reading->offset = (off_t) offset;
    reading->left = (size_t) (count * itemsize);
    reading->done = 0;
    reading->begun_ns = 0;
    return 0;
}

struct screening {
    int width;
    uint64_t near, sign;
    struct extremes extremes;
};

static int take_screen(void *state, const void *block, size_t nbytes, int ends_group)
{
    (void) ends_group;
    struct screening *screening = state;
    struct extremes *all = &screening->extremes, found;
    chosen->screen[screening->width](block, nbytes >> screening->width, &found);
    all->high = found.high > all->high ? found.high : all->high;
    all->least = found.least < all->least ? found.least : all->least;
    all->low = found.low > all->low ? found.low : all->low;
    all->floor = found.floor < all->floor ? found.floor : all->floor;
    return all->high > (int64_t) screening->near
           || all->low > (screening->sign | screening->near);
}

static PyObject *read_screen(PyObject *module, PyObject *const *arguments, Py_ssize_t given)
{
    (void) module;
    if (expect_arguments(given, 6) < 0)
        return NULL;
    Py_ssize_t count = PyLong_AsSsize_t(arguments[2]);
    Py_ssize_t itemsize = PyLong_AsSsize_t(arguments[3]);
    uint64_t near = PyLong_AsUnsignedLongLong(arguments[4]);
    if (PyErr_Occurred())
        return NULL;
    int width = width_of(itemsize);
    if (width < 0)
        return NULL;
    struct reading reading;
    if (open_reading(arguments, arguments[5], count, itemsize, &reading) < 0)
        return NULL;
    struct screening screening = {
        .width = width,
        .near = near,
        .sign = UINT64_C(1) << ((8 << width) - 1),
        .extremes = {.high = INT64_MIN, .least = INT64_MAX, .floor = UINT64_MAX},
    };
    int outcome = read_through(&reading, take_screen, &screening);
    PyBuffer_Release(&reading.buffer);
    if (outcome < 0)
        return NULL;
    if (outcome == READ_FAILED)
        Py_RETURN_NONE;
    return build_extremes(&screening.extremes);
}

struct tallying {
    int type, itemsize;
    uint64_t near;
    struct tally all, group;
};

static const struct tally empty_tally = {.extremes = {.high = INT64_MIN, .floor = UINT64_MAX}};

/* Sums over a group of blocks and then over all groups: as where the caller does it. */
static int take_tally(void *state, const void *block, size_t nbytes, int ends_group)
{
    struct tallying *tallying = state;
    struct tally *group = &tallying->group, *all = &tallying->all;
    chosen->tally[tallying->type](block, nbytes / (size_t) tallying->itemsize, tallying->near, group);
    if (ends_group) {
        struct moments had = all->moments, more = group->moments;
        *all = *group;  /* counts and extremes go on */
        all->moments = had;
        if (more.count)
            merge_moments(&all->moments, more.count, more.total, more.squares, more.deviation);
        group->moments = (struct moments) {0};
    }
    return group->wide;
}

static PyObject *read_tally(PyObject *module, PyObject *const *arguments, Py_ssize_t given)
{
    (void) module;
    if (expect_arguments(given, 6) < 0)
        return NULL;
    Py_ssize_t count = PyLong_AsSsize_t(arguments[2]);
    Py_ssize_t type = PyLong_AsSsize_t(arguments[3]);
    uint64_t near = PyLong_AsUnsignedLongLong(arguments[4]);
    if (PyErr_Occurred())
        return NULL;
    Py_ssize_t itemsize = itemsize_of(type);
    if (itemsize < 0)
        return NULL;
    struct reading reading;
    if (open_reading(arguments, arguments[5], count, itemsize, &reading) < 0)
        return NULL;
    struct tallying tallying = {(int) type, (int) itemsize, near, empty_tally, empty_tally};
    int outcome = read_through(&reading, take_tally, &tallying);
    PyBuffer_Release(&reading.buffer);
    if (outcome < 0)
        return NULL;
    if (outcome != READ_ALL)
        Py_RETURN_NONE;
    return build_tally(&tallying.all);
}
#endif
