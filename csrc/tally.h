/* Full statistics of one float type: NAME, the types CODE and NUMBER of its bit patterns, seen as
 * unsigned and signed numbers, and its bits of FRACTION. NAMED(sum_NAME) and NAMED(around_NAME)
 * sum up a piece. Where AVX2 and TAKE are defined, TAKE adds 16 codes at `i` of 16 bits to the sums.
 * WIDE says of a piece that it cannot be summed up, where there are such.
 */

#define OWN(name) NAMED(JOIN(name, NAME))
#define SIGN ((CODE) ((CODE) 1 << (8 * sizeof(CODE) - 1)))
#define MAGNITUDE ((CODE) ~SIGN)
#define INFINITE ((CODE) (MAGNITUDE >> FRACTION << FRACTION))
#define LIMIT ((CODE) (INFINITE - 1))
#define SMALLEST_NORMAL ((CODE) ((CODE) 1 << FRACTION))

/* What every piece is looked at for. Counts fit, as no piece has 2^16 elements. */
struct OWN(look) {
    CODE low, zero, small;
    NUMBER high;
};

static TARGET struct OWN(look) OWN(look_at)(const CODE *codes, size_t count)
{
    CODE low = 0, zero = 0, small = 0;
    NUMBER high = (NUMBER) SIGN;
    for (size_t i = 0; i < count; i++) {
        CODE code = codes[i], magnitude = code & MAGNITUDE;
        NUMBER number = (NUMBER) code;
        low = code > low ? code : low;
        high = number > high ? number : high;
        zero += magnitude == 0;
        small += magnitude < SMALLEST_NORMAL;
    }
    return (struct OWN(look)) {low, zero, small, high};
}

/* Look at a piece and sum it up; the sums hold only if all of it is finite. */
#if defined(AVX2) && defined(TAKE)
static TARGET struct OWN(look) OWN(sweep)(const CODE *codes, size_t count, struct sums *sums)
{
    const __m256i none = _mm256_setzero_si256(), normal = _mm256_set1_epi16(SMALLEST_NORMAL);
    __m256i low = none, zero = none, small = none, high = _mm256_set1_epi16(INT16_MIN);
    __m256d sum0 = _mm256_setzero_pd(), sum1 = sum0, sum2 = sum0, sum3 = sum0;
    __m256d product0 = sum0, product1 = sum0, product2 = sum0, product3 = sum0;
    size_t i = 0;
    for (; i + 16 <= count; i += 16) {
        __m256i sixteen = _mm256_loadu_si256((const __m256i *) (const void *) (codes + i));
        __m256i magnitude = _mm256_and_si256(sixteen, _mm256_set1_epi16(INT16_MAX));
        low = _mm256_max_epu16(low, sixteen);
        high = _mm256_max_epi16(high, sixteen);
        zero = _mm256_sub_epi16(zero, _mm256_cmpeq_epi16(magnitude, none));
        small = _mm256_sub_epi16(small, _mm256_cmpgt_epi16(normal, magnitude));
        TAKE
    }
    double lanes[8];
    _mm256_storeu_pd(lanes, _mm256_add_pd(_mm256_add_pd(sum0, sum1), _mm256_add_pd(sum2, sum3)));
    _mm256_storeu_pd(lanes + 4, _mm256_add_pd(_mm256_add_pd(product0, product1),
                                              _mm256_add_pd(product2, product3)));
    *sums = (struct sums) {(lanes[0] + lanes[1]) + (lanes[2] + lanes[3]),
                           (lanes[4] + lanes[5]) + (lanes[6] + lanes[7])};
    struct OWN(look) look = {0, 0, 0, (NUMBER) SIGN};
    if (i < count) {
        struct sums rest = OWN(sum)(codes + i, count - i);
        sums->total += rest.total;
        sums->squares += rest.squares;
        look = OWN(look_at)(codes + i, count - i);
    }
    CODE found[4][16];
    _mm256_storeu_si256((__m256i *) (void *) found[0], low);
    _mm256_storeu_si256((__m256i *) (void *) found[1], high);
    _mm256_storeu_si256((__m256i *) (void *) found[2], zero);
    _mm256_storeu_si256((__m256i *) (void *) found[3], small);
    for (int j = 0; j < 16; j++) {
        NUMBER number = (NUMBER) found[1][j];
        look.low = found[0][j] > look.low ? found[0][j] : look.low;
        look.high = number > look.high ? number : look.high;
        look.zero = (CODE) (look.zero + found[2][j]);
        look.small = (CODE) (look.small + found[3][j]);
    }
    return look;
}
#else
static TARGET struct OWN(look) OWN(sweep)(const CODE *codes, size_t count, struct sums *sums)
{
    *sums = OWN(sum)(codes, count);
    return OWN(look_at)(codes, count);
}
#endif

/* Count what is not finite, at the limit or near it. Returns how much is not finite. */
static TARGET size_t OWN(count_large)(const CODE *codes, size_t count, CODE near,
                                      struct tally *found)
{
    CODE above = 0, most = 0, least = 0, nonfinite = 0, posinf = 0, neginf = 0;
    for (size_t i = 0; i < count; i++) {
        CODE code = codes[i], magnitude = code & MAGNITUDE;
        above += magnitude > near;
        most += magnitude == LIMIT;
        least += code == (CODE) (SIGN | LIMIT);
        nonfinite += magnitude >= INFINITE;
        posinf += code == INFINITE;
        neginf += code == (CODE) (SIGN | INFINITE);
    }
    found->near_limit += (uint64_t) above - nonfinite - most;
    found->saturated += most;
    found->saturated_negative += least;
    found->posinf += posinf;
    found->neginf += neginf;
    found->nan += (uint64_t) nonfinite - posinf - neginf;
    return nonfinite;
}

static TARGET size_t OWN(keep_finite)(const CODE *codes, size_t count, CODE *kept)
{
    size_t finite = 0;
    for (size_t i = 0; i < count; i++) {
        kept[finite] = codes[i];
        finite += (CODE) (codes[i] & MAGNITUDE) < INFINITE;
    }
    return finite;
}

static TARGET CODE OWN(find_floor)(const CODE *codes, size_t count)
{
    CODE floor = (CODE) ~(CODE) 0;
    for (size_t i = 0; i < count; i++)
        floor = codes[i] < floor ? codes[i] : floor;
    return floor;
}

static TARGET void OWN(tally)(const void *block, size_t total, uint64_t near, struct tally *found)
{
    struct extremes *extremes = &found->extremes;
    CODE kept[PIECE];
    for (size_t begin = 0; begin < total; begin += PIECE) {
        const CODE *codes = (const CODE *) block + begin;
        size_t count = total - begin < PIECE ? total - begin : PIECE;
        struct sums sums;
        struct OWN(look) look = OWN(sweep)(codes, count, &sums);
        if (look.high > (NUMBER) near || look.low > (CODE) (SIGN | near)) {
            if (OWN(count_large)(codes, count, (CODE) near, found)) {
                count = OWN(keep_finite)(codes, count, kept);
                if (!count)
                    continue;
                codes = kept;
                look = OWN(sweep)(codes, count, &sums);
            }
        }
#if defined(WIDE)
        if (WIDE(codes, count)) {
            found->wide = 1;
            return;
        }
#endif
        found->zero += look.zero;
        found->subnormal += (uint64_t) look.small - look.zero;
        if (look.low > extremes->low)
            extremes->low = look.low;
        if (look.high > extremes->high)
            extremes->high = look.high;
        if (extremes->low < SIGN || extremes->high < 0) {
            /* All of one sign so far: the smallest code is the other end. */
            CODE floor = OWN(find_floor)(codes, count);
            if (floor < extremes->floor)
                extremes->floor = floor;
        }
        /* The deviation needs a pass of its own only where the mean is far from zero. */
        double mean = sums.total / (double) count;
        double deviation = sums.squares - sums.total * mean;
        if (!(deviation > sums.squares / 128))
            deviation = OWN(around)(codes, count, mean);
        merge_moments(&found->moments, count, sums.total, sums.squares, deviation);
    }
}

#undef OWN
#undef SIGN
#undef MAGNITUDE
#undef INFINITE
#undef LIMIT
#undef SMALLEST_NORMAL
#undef NAME
#undef CODE
#undef NUMBER
#undef FRACTION
#undef TAKE
#undef WIDE
