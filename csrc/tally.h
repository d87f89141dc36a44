/* Full statistics of one float type: NAME, the types CODE and NUMBER of its bit patterns, seen as
 * unsigned and signed numbers, and its bits of FRACTION. NAMED(add_NAME) adds to the moments.
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
    for (size_t begin = 0; begin < total && !found->wide; begin += PIECE) {
        const CODE *codes = (const CODE *) block + begin;
        size_t count = total - begin < PIECE ? total - begin : PIECE;
        struct OWN(look) look = OWN(look_at)(codes, count);
        if (look.high > (NUMBER) near || look.low > (CODE) (SIGN | near)) {
            if (OWN(count_large)(codes, count, (CODE) near, found)) {
                count = OWN(keep_finite)(codes, count, kept);
                if (!count)
                    continue;
                codes = kept;
                look = OWN(look_at)(codes, count);
            }
        }
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
        OWN(add)(codes, count, found);
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
