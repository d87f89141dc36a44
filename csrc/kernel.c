/* The Python module `dumpscope._kernel`: statistics of blocks of numbers in C, and listing folders
 * (folders.h).
 *
 * `dumpscope.kernel` uses it where a compiler was there when dumpscope was installed; NumPy does
 * the same elsewhere. The work is in version.h, which is compiled once for each kind of processor
 * from loops that compilers turn into vector code; the best version that the processor can run is
 * chosen when the module is loaded. Nothing here allocates or keeps memory.
 */

#define PY_SSIZE_T_CLEAN
#if !defined(_FILE_OFFSET_BITS)
#define _FILE_OFFSET_BITS 64
#endif
#include <Python.h>

#include <stdint.h>
#include <string.h>

#if !defined(__GNUC__)
#error "needs GCC or Clang"
#endif
#if !defined(__BYTE_ORDER__) || __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "dumps are little-endian, and so must be the machine"
#endif
#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
#endif

/* Blocks may begin at any address and are read as numbers of several types. */
#define ANYWHERE __attribute__((aligned(1), may_alias))
typedef uint8_t u8 ANYWHERE;
typedef uint16_t u16 ANYWHERE;
typedef uint32_t u32 ANYWHERE;
typedef uint64_t u64 ANYWHERE;
typedef float f32 ANYWHERE;
typedef double f64 ANYWHERE;
#if defined(__aarch64__)
typedef __fp16 f16 ANYWHERE;
#endif

enum {
    PIECE = 4096,         /* elements that are looked at several times, in the first cache */
    LANES = 16,           /* independent sums */
    FREE_FROM = 1 << 15,  /* bytes from which it pays to let other threads run meanwhile */
};

/* The extremes of codes (bit patterns), as signed and as unsigned numbers. */
struct extremes {
    int64_t high, least;  /* signed */
    uint64_t low, floor;  /* unsigned: of floats the most negative one, the smallest one */
};

/* Sums over `count` values: of x, of x^2 and of (x - mean)^2. */
struct moments {
    uint64_t count;
    double total, squares, deviation;
};

/* Sums over a piece: of x and of x^2. */
struct sums {
    double total, squares;
};

/* What `exactstats.Tally` holds. Extremes and moments are those of finite elements. */
struct tally {
    uint64_t nan, posinf, neginf, saturated, saturated_negative, near_limit, subnormal, zero;
    struct extremes extremes;  /* without `least` */
    struct moments moments;
    int wide;                  /* squares may leave the range of double: nothing else holds */
};

struct version {
    const char *name;
    /* by the binary logarithm of a code's bytes */
    void (*screen[4])(const void *block, size_t count, struct extremes *found);
    /* float16, bfloat16, float32, float64; codes above `near` are near the limit */
    void (*tally[4])(const void *block, size_t count, uint64_t near, struct tally *found);
};

/* Take more values into account (Chan et al.): accurate however far from zero their mean is. */
static inline void merge_moments(struct moments *sums, size_t count, double total, double squares,
                                 double deviation)
{
    if (sums->count) {
        double had = (double) sums->count, more = (double) count;
        double gap = total / more - sums->total / had;
        /* Rounded as it is in Python: no multiplication and addition in one. */
        volatile double between = gap * gap * (had * (more / (had + more)));
        deviation += between;
    }
    sums->count += count;
    sums->total += total;
    sums->squares += squares;
    sums->deviation += deviation;
}

#define JOIN_(name, version) name##_##version
#define JOIN(name, version) JOIN_(name, version)
#define TEXT_(version) #version
#define TEXT(version) TEXT_(version)
#define NAMED(name) JOIN(name, VERSION)

#define VERSION plain
#define TARGET
#include "version.h"
#undef VERSION
#undef TARGET

#if defined(__x86_64__)
#define AVX2

#define VERSION avx2
#define TARGET __attribute__((target("avx2,fma,f16c")))
#include "version.h"
#undef VERSION
#undef TARGET

#define VERSION avx512
#define TARGET __attribute__((target("avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl")))
#include "version.h"
#undef VERSION
#undef TARGET
#endif

static const struct version *const versions[] = {
#if defined(__x86_64__)
    &version_avx512,
    &version_avx2,
#endif
    &version_plain,
};
enum { VERSIONS = sizeof versions / sizeof versions[0] };

static const struct version *chosen = &version_plain;

#if defined(__x86_64__)
/* Clang only knows this name from version 16 on, so the processor is asked itself. */
static int has_f16c(void)
{
    unsigned eax, ebx, ecx, edx;
    return __get_cpuid(1, &eax, &ebx, &ecx, &edx) && ecx & 1u << 29;
}
#endif

static int runs_here(const struct version *version)
{
#if defined(__x86_64__)
    __builtin_cpu_init();
    int avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && has_f16c();
    if (version == &version_avx2)
        return avx2;
    if (version == &version_avx512)
        return avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw")
               && __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
#endif
    return version == &version_plain;
}

/* How often each byte occurs. */
static void add_bytes(const u8 *bytes, size_t count, int64_t *counts)
{
    enum { TABLES = 8 };  /* equal neighbours must not wait for each other */
    uint32_t tables[TABLES][256];
    while (count) {
        size_t some = count < (UINT32_C(1) << 31) ? count : (UINT32_C(1) << 31), i = 0;
        memset(tables, 0, sizeof tables);
        for (; i + TABLES <= some; i += TABLES)
            for (int j = 0; j < TABLES; j++)
                tables[j][bytes[i + j]]++;
        for (; i < some; i++)
            tables[0][bytes[i]]++;
        for (int code = 0; code < 256; code++)
            for (int j = 0; j < TABLES; j++)
                counts[code] += tables[j][code];
        bytes += some;
        count -= some;
    }
}

/* --- what Python sees ------------------------------------------------------------------------- */

static int expect_arguments(Py_ssize_t found, Py_ssize_t expected)
{
    if (found == expected)
        return 0;
    PyErr_Format(PyExc_TypeError, "expected %zd arguments, found %zd", expected, found);
    return -1;
}

/* Get the bytes of `object`, which must hold `count` numbers of `itemsize` bytes. */
static int open_block(PyObject *object, Py_ssize_t count, Py_ssize_t itemsize, Py_buffer *block)
{
    if (PyObject_GetBuffer(object, block, PyBUF_SIMPLE) < 0)
        return -1;
    if (count > 0 && count <= block->len / itemsize)
        return 0;
    PyErr_Format(PyExc_ValueError, "expected %zd numbers (at least one) of %zd bytes, found %zd bytes",
                 count, itemsize, block->len);
    PyBuffer_Release(block);
    return -1;
}

/* The binary logarithm of the bytes of a number. */
static int width_of(Py_ssize_t itemsize)
{
    int width = itemsize == 1 ? 0 : itemsize == 2 ? 1 : itemsize == 4 ? 2 : 3;
    if (itemsize == 1 << width)
        return width;
    PyErr_SetString(PyExc_ValueError, "expected numbers of 1, 2, 4 or 8 bytes");
    return -1;
}

static PyObject *build_extremes(const struct extremes *found)
{
    return Py_BuildValue("LLKK", (long long) found->high, (long long) found->least,
                         (unsigned long long) found->low, (unsigned long long) found->floor);
}

static PyObject *screen(PyObject *module, PyObject *const *arguments, Py_ssize_t given)
{
    (void) module;
    if (expect_arguments(given, 3) < 0)
        return NULL;
    Py_ssize_t count = PyLong_AsSsize_t(arguments[1]);
    Py_ssize_t itemsize = PyLong_AsSsize_t(arguments[2]);
    if (PyErr_Occurred())
        return NULL;
    int width = width_of(itemsize);
    if (width < 0)
        return NULL;
    Py_buffer block;
    if (open_block(arguments[0], count, itemsize, &block) < 0)
        return NULL;
    struct extremes found;
    if (count * itemsize < FREE_FROM) {
        chosen->screen[width](block.buf, (size_t) count, &found);
    } else {
        Py_BEGIN_ALLOW_THREADS
        chosen->screen[width](block.buf, (size_t) count, &found);
        Py_END_ALLOW_THREADS
    }
    PyBuffer_Release(&block);
    return build_extremes(&found);
}

/* The value of a finite code of float16, bfloat16, float32 or float64. */
static double value_of(uint64_t code, Py_ssize_t type)
{
    float single;
    double value;
    uint32_t bits = (uint32_t) code;
    if (type == 0) {
        u16 half = (u16) code;
        widen_half_plain(&half, 1, &single);
        return single;
    }
    if (type == 3) {
        memcpy(&value, &code, sizeof value);
        return value;
    }
    if (type == 1)
        bits <<= 16;
    memcpy(&single, &bits, sizeof single);
    return single;
}

/* What `screen_floats` and `tally` are asked: a block of `count` values of a float type. */
struct request {
    Py_buffer block;
    Py_ssize_t count;
    Py_ssize_t type;
    Py_ssize_t itemsize;
    uint64_t near;
};

static Py_ssize_t itemsize_of(Py_ssize_t type)
{
    static const Py_ssize_t itemsizes[4] = {2, 2, 4, 8};
    if (type >= 0 && type <= 3)
        return itemsizes[type];
    PyErr_SetString(PyExc_ValueError, "expected a type of 0 to 3");
    return -1;
}

static int open_request(PyObject *const *arguments, Py_ssize_t given, struct request *request)
{
    if (expect_arguments(given, 4) < 0)
        return -1;
    request->count = PyLong_AsSsize_t(arguments[1]);
    request->type = PyLong_AsSsize_t(arguments[2]);
    request->near = PyLong_AsUnsignedLongLong(arguments[3]);
    if (PyErr_Occurred())
        return -1;
    request->itemsize = itemsize_of(request->type);
    if (request->itemsize < 0)
        return -1;
    return open_block(arguments[0], request->count, request->itemsize, &request->block);
}

static PyObject *screen_floats(PyObject *module, PyObject *const *arguments, Py_ssize_t given)
{
    struct request asked;
    (void) module;
    if (open_request(arguments, given, &asked) < 0)
        return NULL;
    int width = asked.type < 2 ? 1 : (int) asked.type;
    uint64_t near = asked.near;
    struct extremes found;
    chosen->screen[width](asked.block.buf, (size_t) asked.count, &found);
    PyBuffer_Release(&asked.block);
    uint64_t sign = UINT64_C(1) << ((8 << width) - 1);
    if (found.high > (int64_t) near || found.low > (sign | near))
        Py_RETURN_NONE;
    uint64_t least = found.low >= sign ? found.low : found.floor;
    uint64_t most = found.high >= 0 ? (uint64_t) found.high : found.floor;
    /* Adding zero makes 0.0 of -0.0. */
    return Py_BuildValue("dd", value_of(least, asked.type) + 0.0,
                         value_of(most, asked.type) + 0.0);
}

static PyObject *build_tally(const struct tally *found)
{
    typedef unsigned long long number;
    return Py_BuildValue(
        "(KKKKKKKK)(LKK)(Kddd)", (number) found->nan, (number) found->posinf,
        (number) found->neginf, (number) found->saturated, (number) found->saturated_negative,
        (number) found->near_limit, (number) found->subnormal, (number) found->zero,
        (long long) found->extremes.high, (number) found->extremes.low,
        (number) found->extremes.floor, (number) found->moments.count, found->moments.total,
        found->moments.squares, found->moments.deviation);
}

static PyObject *tally(PyObject *module, PyObject *const *arguments, Py_ssize_t given)
{
    struct request asked;
    (void) module;
    if (open_request(arguments, given, &asked) < 0)
        return NULL;
    struct tally found = {.extremes = {.high = INT64_MIN, .floor = UINT64_MAX}};
    if (asked.count * asked.itemsize < FREE_FROM) {
        chosen->tally[asked.type](asked.block.buf, (size_t) asked.count, asked.near, &found);
    } else {
        Py_BEGIN_ALLOW_THREADS
        chosen->tally[asked.type](asked.block.buf, (size_t) asked.count, asked.near, &found);
        Py_END_ALLOW_THREADS
    }
    PyBuffer_Release(&asked.block);
    if (found.wide)
        Py_RETURN_NONE;
    return build_tally(&found);
}

#include "reading.h"

static PyObject *count_bytes(PyObject *module, PyObject *const *arguments, Py_ssize_t given)
{
    (void) module;
    if (expect_arguments(given, 2) < 0)
        return NULL;
    Py_buffer block, counts;
    if (PyObject_GetBuffer(arguments[0], &block, PyBUF_SIMPLE) < 0)
        return NULL;
    if (PyObject_GetBuffer(arguments[1], &counts, PyBUF_WRITABLE) < 0) {
        PyBuffer_Release(&block);
        return NULL;
    }
    int fits = counts.len == 256 * sizeof(int64_t) && (uintptr_t) counts.buf % 8 == 0;
    if (!fits) {
        PyErr_SetString(PyExc_ValueError, "expected an aligned array of 256 int64");
    } else if (block.len < FREE_FROM) {
        add_bytes(block.buf, (size_t) block.len, counts.buf);
    } else {
        Py_BEGIN_ALLOW_THREADS
        add_bytes(block.buf, (size_t) block.len, counts.buf);
        Py_END_ALLOW_THREADS
    }
    PyBuffer_Release(&counts);
    PyBuffer_Release(&block);
    if (!fits)
        return NULL;
    Py_RETURN_NONE;
}

static PyObject *list_versions(PyObject *module, PyObject *none)
{
    (void) module, (void) none;
    PyObject *names = PyList_New(0);
    for (int i = 0; names && i < VERSIONS; i++) {
        if (!runs_here(versions[i]))
            continue;
        PyObject *name = PyUnicode_FromString(versions[i]->name);
        if (!name || PyList_Append(names, name) < 0)
            Py_CLEAR(names);
        Py_XDECREF(name);
    }
    return names;
}

static PyObject *choose_version(PyObject *module, PyObject *name)
{
    (void) module;
    for (int i = 0; i < VERSIONS; i++) {
        PyObject *own = PyUnicode_FromString(versions[i]->name);
        int equal = own ? PyObject_RichCompareBool(own, name, Py_EQ) : -1;
        Py_XDECREF(own);
        if (equal < 0)
            return NULL;
        if (equal && runs_here(versions[i])) {
            chosen = versions[i];
            Py_RETURN_NONE;
        }
    }
    PyErr_SetString(PyExc_ValueError, "expected the name of a version that runs here");
    return NULL;
}

#include "folders.h"

static PyMethodDef methods[] = {
    {"screen", (PyCFunction) (void (*)(void)) screen, METH_FASTCALL,
     "screen(block, count, itemsize): the largest and smallest code, signed and unsigned"},
    {"screen_floats", (PyCFunction) (void (*)(void)) screen_floats, METH_FASTCALL,
     "screen_floats(block, count, type, near): the smallest and largest value of finite floats, or "
     "None if any is above near"},
    {"tally", (PyCFunction) (void (*)(void)) tally, METH_FASTCALL,
     "tally(block, count, type, near): counts, extremes and moments, or None if too wide"},
#if defined(READS_FILES)
    {"read_screen", (PyCFunction) (void (*)(void)) read_screen, METH_FASTCALL,
     "read_screen(descriptor, offset, count, itemsize, near, buffer): like screen, up to the first "
     "block with more than near, or None if it cannot be read"},
    {"read_tally", (PyCFunction) (void (*)(void)) read_tally, METH_FASTCALL,
     "read_tally(descriptor, offset, count, type, near, buffer): like tally, or None too if it "
     "cannot be read"},
#endif
    {"count_bytes", (PyCFunction) (void (*)(void)) count_bytes, METH_FASTCALL,
     "count_bytes(block, counts): add to 256 int64 how often each byte occurs"},
    {"versions", list_versions, METH_NOARGS, "versions(): what runs on this processor, best first"},
    {"choose", choose_version, METH_O, "choose(version): use it instead of the best one"},
    LIST_FOLDER
    {NULL, NULL, 0, NULL},
};

static int fill_module(PyObject *module)
{
    (void) module;
    for (int i = VERSIONS; i-- > 0;)
        if (runs_here(versions[i]))
            chosen = versions[i];
    return 0;
}

static PyModuleDef_Slot slots[] = {
    {Py_mod_exec, (void *) fill_module},
    {0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "dumpscope._kernel",
    .m_doc = "Statistics of blocks of numbers, and listing folders; use it through dumpscope.kernel.",
    .m_methods = methods,
    .m_slots = slots,
};

PyMODINIT_FUNC PyInit__kernel(void)
{
    return PyModuleDef_Init(&definition);
}
