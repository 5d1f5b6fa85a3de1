/* The columns inside the commits of litelog's own format. */

enum { COMMIT_HEADER_BYTES = 40, FEWEST_COMMIT_BYTES = 48, CHECKSUM_BYTES = 4, KEYED = 1, STAMPED = 2 };
enum { BODY_SEQUENCES, BODY_TIMES, BODY_VALUE_STARTS, BODY_VALUE_LENGTHS, BODY_KEY_STARTS, BODY_KEY_LENGTHS };

/* A commit, by its header. */
struct commit {
    int64_t first, count, total, flags, value_bytes, stamp;
    bytes stamps, value_lengths, key_lengths, keys;
};

/* Reads the header of the commit at `at`. Returns whether its arrays lie in it. */
static int open_commit(bytes at, int64_t left, struct commit *commit)
{
    if (left < FEWEST_COMMIT_BYTES)
        return 0;
    commit->first = field(at, 8, 0);
    commit->count = field(at + 16, 2, 0);
    commit->total = 26 + field(at + 18, 4, 0);
    commit->flags = at[23];
    commit->value_bytes = field(at + 24, 8, 0);
    commit->stamp = field(at + 32, 8, 0);
    commit->stamps = at + COMMIT_HEADER_BYTES;
    commit->value_lengths = commit->stamps + (commit->flags & STAMPED ? 8 * commit->count : 0);
    commit->key_lengths = commit->value_lengths + 4 * commit->count;
    commit->keys = commit->key_lengths + (commit->flags & KEYED ? 4 * commit->count : 0);
    return commit->total <= left && commit->count && commit->flags <= (KEYED | STAMPED) && commit->value_bytes >= 0 &&
           commit->keys - at <= commit->total - CHECKSUM_BYTES;
}

/* The sum of `count` lengths of 32 bits; negative ones, which are allowed down to `lowest`, count as 0. -1 if one is
   lower. */
static int64_t sum_lengths(bytes at, int64_t count, int64_t lowest)
{
    int64_t sum = 0;

    for (int64_t each = 0; each < count; each++) {
        int64_t length = field(at + 4 * each, lowest < 0 ? -4 : 4, 0);

        if (length < lowest)
            return -1;
        sum += length > 0 ? length : 0;
    }
    return sum;
}

/* Whether keys, values and 0 to 7 zeros fill the commit at `at`. */
static int is_full(bytes at, const struct commit *commit, int64_t key_bytes)
{
    int64_t used = commit->keys - at, room = commit->total - CHECKSUM_BYTES - used;

    if (key_bytes < 0 || key_bytes > room || commit->value_bytes > room - key_bytes)
        return 0;
    used += key_bytes + commit->value_bytes;
    if (commit->total - CHECKSUM_BYTES - used > 7 || sum_lengths(commit->value_lengths, commit->count, 0) != commit->value_bytes)
        return 0;
    for (; used < commit->total - CHECKSUM_BYTES; used++)
        if (at[used])
            return 0;
    return 1;
}

static void put_times(const struct commit *commit, int64_t *times, int64_t *range)
{
    for (int64_t each = 0; each < commit->count; each++) {
        int64_t time = commit->flags & STAMPED ? field(commit->stamps + 8 * each, 8, 0) : commit->stamp;

        times[each] = time;
        range[0] = time < range[0] ? time : range[0];
        range[1] = time > range[1] ? time : range[1];
    }
}

static void put_places(bytes lengths, int64_t count, int64_t place, int64_t *starts, int64_t *found, int64_t has_sign)
{
    for (int64_t each = 0; each < count; each++) {
        int64_t length = lengths ? field(lengths + 4 * each, has_sign ? -4 : 4, 0) : -1;

        starts[each] = place;
        found[each] = length;
        place += length > 0 ? length : 0;
    }
}

/*
 * The records of litelog's commits that begin at `positions`, whose headers and checksums are right.
 *
 * Writes columns of `total` numbers, in the order of the enumeration above: those of keys only if `with_keys` is not 0;
 * the number of the first record of each commit; and the lowest and the highest time. Returns the number of records;
 * -1 if a commit is not plainly right, has keys that were not asked for, or there are not `total` records.
 */
int64_t litelog_take_bodies(bytes data, int64_t size, const int64_t *positions, int64_t commits, int64_t with_keys,
                            int64_t *columns, int64_t total, int64_t *firsts, int64_t *range)
{
    int64_t row = 0;

    range[0] = INT64_MAX;
    range[1] = INT64_MIN;
    for (int64_t each = 0; each < commits; each++) {
        struct commit commit;
        int64_t position = positions[each], key_bytes = 0, *into = columns + row;
        bytes at = data + (position < 0 || position > size ? size : position), keys;

        if (!open_commit(at, data + size - at, &commit) || commit.count > total - row)
            return -1;
        if (commit.flags & STAMPED && field(commit.stamps, 8, 0) != commit.stamp)
            return -1;
        if (commit.flags & KEYED)
            key_bytes = with_keys ? sum_lengths(commit.key_lengths, commit.count, -1) : -1;
        if (!is_full(at, &commit, key_bytes))
            return -1;
        firsts[each] = row;
        keys = commit.flags & KEYED ? commit.key_lengths : 0;
        for (int64_t record = 0; record < commit.count; record++)
            into[record] = (int64_t)((uint64_t)commit.first + (uint64_t)record);
        put_times(&commit, into + BODY_TIMES * total, range);
        put_places(commit.value_lengths, commit.count, commit.keys - data + key_bytes, into + BODY_VALUE_STARTS * total,
                   into + BODY_VALUE_LENGTHS * total, 0);
        if (with_keys)
            put_places(keys, commit.count, commit.keys - data, into + BODY_KEY_STARTS * total,
                       into + BODY_KEY_LENGTHS * total, 1);
        row += commit.count;
    }
    return row == total ? row : -1;
}
