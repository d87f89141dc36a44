/* All loops, for one kind of processor: VERSION names it, TARGET is the attribute that lets the
 * compiler use it, AVX2 is defined where it has at least that.
 *
 * Everything is found from the bit patterns ("codes") of the numbers, as in
 * `dumpscope.stats.floatcodes`: in an integer view of a float type the order of codes is the order of
 * magnitudes. Sums are formed in double over pieces that stay in the first cache. What is exact
 * in double (squares of all types but float64) is the same on every machine.
 */

/* --- the extremes of a block: all that screening needs ------------------------------------------ */

#define DEFINE_SCREEN(NAME, CODE, SIGNED)                                                      \
    static TARGET void NAMED(NAME)(const void *block, size_t count, struct extremes *found)    \
    {                                                                                          \
        const CODE *codes = block;                                                             \
        CODE low = 0, floor = (CODE) ~(CODE) 0;                                                \
        SIGNED high = (SIGNED) ~(floor >> 1), least = (SIGNED) (floor >> 1);                   \
        for (size_t i = 0; i < count; i++) {                                                   \
            CODE code = codes[i];                                                              \
            SIGNED number = (SIGNED) code;                                                     \
            low = code > low ? code : low;                                                     \
            floor = code < floor ? code : floor;                                               \
            high = number > high ? number : high;                                              \
            least = number < least ? number : least;                                           \
        }                                                                                      \
        *found = (struct extremes) {high, least, low, floor};                                  \
    }

DEFINE_SCREEN(screen_8, u8, int8_t)
DEFINE_SCREEN(screen_16, u16, int16_t)
DEFINE_SCREEN(screen_32, u32, int32_t)
DEFINE_SCREEN(screen_64, u64, int64_t)
#undef DEFINE_SCREEN

/* --- sums ----------------------------------------------------------------------------------------- */

static TARGET double NAMED(add_up)(double *lanes)
{
    for (int step = LANES / 2; step; step /= 2)
        for (int j = 0; j < step; j++)
            lanes[j] += lanes[j + step];
    return lanes[0];
}

#define DEFINE_SUMS(NAME, FLOAT)                                                               \
    static TARGET struct sums NAMED(NAME)(const FLOAT *values, size_t count)                   \
    {                                                                                          \
        double sums[LANES] = {0}, products[LANES] = {0};                                       \
        size_t i = NAMED(NAME##_fast)(values, count, sums, products);                          \
        for (int j = 0; i < count; i++, j = (j + 1) % LANES) {                                 \
            double value = values[i];                                                          \
            sums[j] += value;                                                                  \
            products[j] += value * value;                                                      \
        }                                                                                      \
        return (struct sums) {NAMED(add_up)(sums), NAMED(add_up)(products)};                   \
    }                                                                                          \
                                                                                               \
    static TARGET double NAMED(NAME##_around)(const FLOAT *values, size_t count, double mean)  \
    {                                                                                          \
        double products[LANES] = {0};                                                          \
        size_t i = 0;                                                                          \
        for (; i + LANES <= count; i += LANES)                                                 \
            for (int j = 0; j < LANES; j++) {                                                  \
                double value = values[i + j] - mean;                                           \
                products[j] += value * value;                                                  \
            }                                                                                  \
        for (int j = 0; i < count; i++, j++) {                                                 \
            double value = values[i] - mean;                                                   \
            products[j] += value * value;                                                      \
        }                                                                                      \
        return NAMED(add_up)(products);                                                        \
    }                                                                                          \

#if defined(AVX2)
#define ADD_FOUR(LANE, LOADED)                                                                 \
    __m256d value##LANE = (LOADED);                                                            \
    sum##LANE = _mm256_add_pd(sum##LANE, value##LANE);                                         \
    product##LANE = _mm256_fmadd_pd(value##LANE, value##LANE, product##LANE);

/* Compilers of today make half the speed of this out of the plain loop. */
#define DEFINE_FAST_SUMS(NAME, FLOAT, LOAD)                                                    \
    static TARGET size_t NAMED(NAME##_fast)(const FLOAT *values, size_t count, double *sums,   \
                                            double *products)                                  \
    {                                                                                          \
        __m256d sum0 = _mm256_setzero_pd(), sum1 = sum0, sum2 = sum0, sum3 = sum0;             \
        __m256d product0 = sum0, product1 = sum0, product2 = sum0, product3 = sum0;            \
        size_t i = 0;                                                                          \
        for (; i + LANES <= count; i += LANES) {                                               \
            ADD_FOUR(0, LOAD(values + i))                                                      \
            ADD_FOUR(1, LOAD(values + i + 4))                                                  \
            ADD_FOUR(2, LOAD(values + i + 8))                                                  \
            ADD_FOUR(3, LOAD(values + i + 12))                                                 \
        }                                                                                      \
        _mm256_storeu_pd(sums, sum0);                                                          \
        _mm256_storeu_pd(sums + 4, sum1);                                                      \
        _mm256_storeu_pd(sums + 8, sum2);                                                      \
        _mm256_storeu_pd(sums + 12, sum3);                                                     \
        _mm256_storeu_pd(products, product0);                                                  \
        _mm256_storeu_pd(products + 4, product1);                                              \
        _mm256_storeu_pd(products + 8, product2);                                              \
        _mm256_storeu_pd(products + 12, product3);                                             \
        return i;                                                                              \
    }
#define LOAD_F32(from) _mm256_cvtps_pd(_mm_loadu_ps((const float *) (from)))
#define LOAD_F64(from) _mm256_loadu_pd((const double *) (from))
DEFINE_FAST_SUMS(sum_f32, f32, LOAD_F32)
DEFINE_FAST_SUMS(sum_f64, f64, LOAD_F64)
#undef ADD_FOUR
#undef LOAD_F32
#undef LOAD_F64
#else
#define DEFINE_FAST_SUMS(NAME, FLOAT)                                                          \
    static TARGET size_t NAMED(NAME##_fast)(const FLOAT *values, size_t count, double *sums,   \
                                            double *products)                                  \
    {                                                                                          \
        size_t i = 0;                                                                          \
        for (; i + LANES <= count; i += LANES)                                                 \
            for (int j = 0; j < LANES; j++) {                                                  \
                double value = values[i + j];                                                  \
                sums[j] += value;                                                              \
                products[j] += value * value;                                                  \
            }                                                                                  \
        return i;                                                                              \
    }
DEFINE_FAST_SUMS(sum_f32, f32)
DEFINE_FAST_SUMS(sum_f64, f64)
#endif
#undef DEFINE_FAST_SUMS

DEFINE_SUMS(sum_f32, f32)
DEFINE_SUMS(sum_f64, f64)
#undef DEFINE_SUMS

/* --- from 16 bits to float ------------------------------------------------------------------------ */

static TARGET void NAMED(widen_half)(const u16 *codes, size_t count, float *values)
{
    size_t i = 0;
#if defined(AVX2)
    for (; i + 8 <= count; i += 8) {
        __m128i eight = _mm_loadu_si128((const __m128i *) (const void *) (codes + i));
        _mm256_storeu_ps(values + i, _mm256_cvtph_ps(eight));
    }
#elif defined(__aarch64__)
    const f16 *halves = (const f16 *) codes;
    for (; i < count; i++)
        values[i] = (float) halves[i];
    return;
#endif
    /* The exponent is moved to its place. A subnormal number gets the exponent of the smallest
     * normal one, and that number is taken away again: without this it would be a subnormal
     * float on the way, which many processors are slow with. */
    u32 *bits = (u32 *) values;
    f32 *magnitudes = values;
    for (size_t k = i; k < count; k++) {
        uint32_t code = codes[k] & 0x7FFF;
        bits[k] = (code << 13) + (code < 0x400 ? 113u << 23 : 112u << 23);
    }
    for (size_t k = i; k < count; k++)
        magnitudes[k] -= (codes[k] & 0x7FFF) < 0x400 ? 0x1p-14f : 0.0f;
    for (size_t k = i; k < count; k++)
        bits[k] |= (uint32_t) (codes[k] & 0x8000) << 16;
}

static TARGET void NAMED(widen_bfloat)(const u16 *codes, size_t count, float *values)
{
    for (size_t i = 0; i < count; i++) {
        uint32_t bits = (uint32_t) codes[i] << 16;
        memcpy(&values[i], &bits, sizeof bits);
    }
}

/* --- sums over a piece of codes, and what is needed for its deviation --------------------------- */

static TARGET struct sums NAMED(sum_half)(const u16 *codes, size_t count)
{
    float values[PIECE];
    NAMED(widen_half)(codes, count, values);
    return NAMED(sum_f32)(values, count);
}

static TARGET double NAMED(around_half)(const u16 *codes, size_t count, double mean)
{
    float values[PIECE];
    NAMED(widen_half)(codes, count, values);
    return NAMED(sum_f32_around)(values, count, mean);
}

static TARGET struct sums NAMED(sum_bfloat)(const u16 *codes, size_t count)
{
    float values[PIECE];
    NAMED(widen_bfloat)(codes, count, values);
    return NAMED(sum_f32)(values, count);
}

static TARGET double NAMED(around_bfloat)(const u16 *codes, size_t count, double mean)
{
    float values[PIECE];
    NAMED(widen_bfloat)(codes, count, values);
    return NAMED(sum_f32_around)(values, count, mean);
}

static TARGET struct sums NAMED(sum_single)(const u32 *codes, size_t count)
{
    return NAMED(sum_f32)((const f32 *) codes, count);
}

static TARGET double NAMED(around_single)(const u32 *codes, size_t count, double mean)
{
    return NAMED(sum_f32_around)((const f32 *) codes, count, mean);
}

static TARGET struct sums NAMED(sum_double)(const u64 *codes, size_t count)
{
    return NAMED(sum_f64)((const f64 *) codes, count);
}

static TARGET double NAMED(around_double)(const u64 *codes, size_t count, double mean)
{
    return NAMED(sum_f64_around)((const f64 *) codes, count, mean);
}

/* Whether squares may leave the range of double: the bounds of `exactstats.moments_of`, beyond
 * which values have to be scaled. */
static TARGET int NAMED(are_wide)(const u64 *codes, size_t count)
{
    uint64_t largest = 0;
    for (size_t i = 0; i < count; i++) {
        uint64_t magnitude = codes[i] & (UINT64_MAX >> 1);
        largest = magnitude > largest ? magnitude : largest;
    }
    int exponent = (int) (largest >> 52) - 1022;
    return largest && (exponent <= -400 || exponent >= 400);
}

#if defined(AVX2)
/* 16 codes of 16 bits as four times four doubles. */
#define TAKE_FOUR(LANE, FOUR)                                                                  \
    __m256d value##LANE = _mm256_cvtps_pd(FOUR);                                               \
    sum##LANE = _mm256_add_pd(sum##LANE, value##LANE);                                         \
    product##LANE = _mm256_fmadd_pd(value##LANE, value##LANE, product##LANE);
#define HALVES(FROM) _mm_cvtph_ps(_mm_loadl_epi64((const __m128i *) (const void *) (FROM)))
#define TAKE_half                                                                              \
    TAKE_FOUR(0, HALVES(codes + i))                                                            \
    TAKE_FOUR(1, HALVES(codes + i + 4))                                                        \
    TAKE_FOUR(2, HALVES(codes + i + 8))                                                        \
    TAKE_FOUR(3, HALVES(codes + i + 12))
#define TAKE_bfloat                                                                            \
    __m256 even = _mm256_castsi256_ps(_mm256_slli_epi32(sixteen, 16));                         \
    __m256 odd = _mm256_castsi256_ps(_mm256_and_si256(sixteen, _mm256_set1_epi32(-65536)));    \
    TAKE_FOUR(0, _mm256_castps256_ps128(even))                                                 \
    TAKE_FOUR(1, _mm256_extractf128_ps(even, 1))                                               \
    TAKE_FOUR(2, _mm256_castps256_ps128(odd))                                                  \
    TAKE_FOUR(3, _mm256_extractf128_ps(odd, 1))
#endif

#define NAME half
#define CODE u16
#define NUMBER int16_t
#define FRACTION 10
#define TAKE TAKE_half
#include "tally.h"

#define NAME bfloat
#define CODE u16
#define NUMBER int16_t
#define FRACTION 7
#define TAKE TAKE_bfloat
#include "tally.h"

#define NAME single
#define CODE u32
#define NUMBER int32_t
#define FRACTION 23
#include "tally.h"

#define NAME double
#define CODE u64
#define NUMBER int64_t
#define FRACTION 52
#define WIDE NAMED(are_wide)
#include "tally.h"

#if defined(AVX2)
#undef TAKE_FOUR
#undef HALVES
#undef TAKE_half
#undef TAKE_bfloat
#endif

static const struct version NAMED(version) = {
    TEXT(VERSION),
    {NAMED(screen_8), NAMED(screen_16), NAMED(screen_32), NAMED(screen_64)},
    {NAMED(tally_half), NAMED(tally_bfloat), NAMED(tally_single), NAMED(tally_double)},
};
