/* The columns inside the commits of litelog's own format. */

enum { COMMIT_HEADER_BYTES = 40, FEWEST_COMMIT_BYTES = 48, CHECKSUM_BYTES = 4, KEYED = 1, STAMPED = 2 };
enum { BODY_LAYOUT = 1 };
enum { NEXT, EPOCH, LOWEST, HIGHEST }; /* of a run of commits */
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

/* The sum of `count` lengths of keys; null ones, of -1, count as 0. -1 if one is lower. */
static int64_t sum_keys(bytes at, int64_t count)
{
    int64_t sum = 0;

    for (int64_t each = 0; each < count; each++) {
        int64_t length = field(at + 4 * each, -4, 0);

        if (length < -1)
            return -1;
        sum += length > 0 ? length : 0;
    }
    return sum;
}

/* Whether keys, values and 0 to 7 zeros fill the commit at `at`, if the values are as long as it says. */
static int is_full(bytes at, const struct commit *commit, int64_t key_bytes)
{
    int64_t used = commit->keys - at, room = commit->total - CHECKSUM_BYTES - used;

    if (key_bytes < 0 || key_bytes > room || commit->value_bytes > room - key_bytes)
        return 0;
    used += key_bytes + commit->value_bytes;
    if (commit->total - CHECKSUM_BYTES - used > 7)
        return 0;
    for (; used < commit->total - CHECKSUM_BYTES; used++)
        if (at[used])
            return 0;
    return 1;
}

static void put_times(const struct commit *commit, int64_t *times, int64_t *range)
{
    for (int64_t each = 0; each < commit->count; each++) {
        int64_t time = field(commit->stamps + 8 * each, 8, 0);

        if (times)
            times[each] = time;
        range[0] = time < range[0] ? time : range[0];
        range[1] = time > range[1] ? time : range[1];
    }
}

static void put_keys(const struct commit *commit, int64_t place, int64_t *starts, int64_t *lengths)
{
    for (int64_t each = 0; each < commit->count; each++) {
        int64_t length = commit->flags & KEYED ? field(commit->key_lengths + 4 * each, -4, 0) : -1;

        starts[each] = place;
        lengths[each] = length;
        place += length > 0 ? length : 0;
    }
}

/* The bytes of the values of a commit, as it states them. */
static int64_t sum_values(const struct commit *commit)
{
    int64_t sum = 0;

    for (int64_t each = 0; each < commit->count; each++)
        sum += field(commit->value_lengths + 4 * each, 4, 0);
    return sum;
}

/* Writes the records of a commit, whose values begin at `place`, with its own time. Returns the bytes of the values. */
static int64_t put_body(const struct commit *commit, int64_t place, int64_t *into, int64_t total)
{
    int64_t *sequences = into + BODY_SEQUENCES * total, *times = into + BODY_TIMES * total;
    int64_t *starts = into + BODY_VALUE_STARTS * total, *lengths = into + BODY_VALUE_LENGTHS * total, sum = 0;

    for (int64_t each = 0; each < commit->count; each++) {
        int64_t length = field(commit->value_lengths + 4 * each, 4, 0);

        sequences[each] = (int64_t)((uint64_t)commit->first + (uint64_t)each);
        times[each] = commit->stamp;
        starts[each] = place + sum;
        lengths[each] = length;
        sum += length;
    }
    return sum;
}

/* Writes the records of the commit at `at`, whose arrays lie in it, into columns of `total` numbers, which have room
   for them; nothing if `into` is 0. Returns whether it is plainly right, and has no keys unless they were asked for. */
static int take_body(bytes data, bytes at, const struct commit *commit, int64_t with_keys, int64_t *into, int64_t total,
                     int64_t *range)
{
    int64_t key_bytes = 0, place;

    if (commit->flags & STAMPED && field(commit->stamps, 8, 0) != commit->stamp)
        return 0;
    if (commit->flags & KEYED)
        key_bytes = with_keys ? sum_keys(commit->key_lengths, commit->count) : -1;
    if (!is_full(at, commit, key_bytes))
        return 0;
    place = commit->keys - data;
    if ((into ? put_body(commit, place + key_bytes, into, total) : sum_values(commit)) != commit->value_bytes)
        return 0;
    if (into && with_keys)
        put_keys(commit, place, into + BODY_KEY_STARTS * total, into + BODY_KEY_LENGTHS * total);
    if (commit->flags & STAMPED) {
        put_times(commit, into ? into + BODY_TIMES * total : 0, range);
    } else {
        range[0] = commit->stamp < range[0] ? commit->stamp : range[0];
        range[1] = commit->stamp > range[1] ? commit->stamp : range[1];
    }
    return 1;
}

/*
 * The records of litelog's commits that begin at `positions`, whose headers and checksums are right.
 *
 * Writes columns of `total` numbers, in the order of the enumeration above: those of keys only if `with_keys` is not 0,
 * and none if `columns` is 0; the number of the first record of each commit; and the lowest and the highest time. Returns
 * the number of records; -1 if a commit is not plainly right, has keys that were not asked for, or there are not `total`
 * records.
 */
int64_t litelog_take_bodies(bytes data, int64_t size, const int64_t *positions, int64_t commits, int64_t with_keys,
                            int64_t *columns, int64_t total, int64_t *firsts, int64_t *range)
{
    int64_t row = 0;

    range[0] = INT64_MAX;
    range[1] = INT64_MIN;
    for (int64_t each = 0; each < commits; each++) {
        struct commit commit;
        int64_t position = positions[each];
        bytes at = data + (position < 0 || position > size ? size : position);

        if (!open_commit(at, data + size - at, &commit) || commit.count > total - row)
            return -1;
        if (!take_body(data, at, &commit, with_keys, columns ? columns + row : 0, total, range))
            return -1;
        firsts[each] = row;
        row += commit.count;
    }
    return row == total ? row : -1;
}

/* Counts litelog's commits from `start` on, by their lengths alone: as many as litelog_take_commits finds at most.
   Writes how many records they state, and which flags any of them has. */
int64_t litelog_count_commits(bytes data, int64_t size, int64_t start, int64_t *records, int64_t *flags)
{
    int64_t count = 0;
    struct commit commit;

    *records = *flags = 0;
    for (; start >= 0 && start <= size && open_commit(data + start, size - start, &commit); count++) {
        *records += commit.count;
        *flags |= commit.flags;
        start += commit.total;
    }
    return count;
}

/* Takes the commit at `position`, with `room` for its records, as litelog_take_commits does. Returns whether it is plainly
   right. */
static int take_commit(bytes data, int64_t size, int64_t position, int64_t most_bytes, int64_t with_keys, int64_t *into,
                       int64_t total, int64_t room, int64_t *run, struct commit *commit)
{
    bytes at = data + position;
    uint64_t epoch;

    if (!open_commit(at, size - position, commit) || commit->total & 7 || commit->total > most_bytes)
        return 0;
    epoch = (uint64_t)field(at + 8, 8, 0);
    if (commit->first != run[NEXT] || commit->first < 0 || commit->first > INT64_MAX - commit->count)
        return 0;
    if (epoch < (uint64_t)run[EPOCH] || at[22] != BODY_LAYOUT || commit->count > room)
        return 0;
    if (checksum(&crc32c, at, commit->total - CHECKSUM_BYTES) != number(at + commit->total - CHECKSUM_BYTES, 0))
        return 0;
    if (!take_body(data, at, commit, with_keys, into, total, run + LOWEST))
        return 0;
    run[NEXT] = commit->first + commit->count;
    run[EPOCH] = (int64_t)epoch;
    return 1;
}

/*
 * litelog's commits from `start` on, up to the first that is not plainly right, and their records.
 *
 * run: the sequence that the first of them must have, and the epoch that none of them may be below. most_bytes: of a
 * commit. Writes what litelog_take_bodies does; where each commit begins, and where the last one ends, at most
 * capacity + 1 places; and into `run` which sequence and epoch may follow, the lowest and the highest time. Returns the
 * number of commits.
 */
int64_t litelog_take_commits(bytes data, int64_t size, int64_t start, int64_t most_bytes, int64_t with_keys,
                             int64_t *columns, int64_t total, int64_t *bounds, int64_t *firsts, int64_t capacity,
                             int64_t *run)
{
    int64_t count = 0, row = 0, position = start;

    run[LOWEST] = INT64_MAX;
    run[HIGHEST] = INT64_MIN;
    bounds[0] = start;
    for (; count < capacity && position >= 0 && position <= size; count++) {
        struct commit commit;

        if (!take_commit(data, size, position, most_bytes, with_keys, columns ? columns + row : 0, total, total - row, run,
                         &commit))
            break;
        firsts[count] = row;
        row += commit.count;
        position += commit.total;
        bounds[count + 1] = position;
    }
    return count;
}

/*
 * Checks litelog's commits from `start` on as litelog_take_commits does, and writes no records.
 *
 * Writes into `facts` where the last commit begins, where it ends, how many records there are, and the CRC-32C of all
 * bytes up to there, which follows from the checksums of the commits. Returns the number of commits; 0 also if the
 * processor has no instructions for that.
 */
int64_t litelog_check_commits(bytes data, int64_t size, int64_t start, int64_t most_bytes, int64_t *run, int64_t *facts)
{
    int64_t count = 0, records = 0, last = start, position = start;
    uint32_t state;

    run[LOWEST] = INT64_MAX;
    run[HIGHEST] = INT64_MIN;
    if (!can_fold || !crc32c.has_instruction || start < 0 || start > size)
        return 0;
    state = checksum(&crc32c, data, start);
    for (struct commit commit; position < size; count++) {
        if (!take_commit(data, size, position, most_bytes, 1, 0, 0, INT64_MAX, run, &commit))
            break;
        state = append_checked(state, commit.total);
        records += commit.count;
        last = position;
        position += commit.total;
    }
    facts[0] = last;
    facts[1] = position;
    facts[2] = records;
    facts[3] = state;
    return count;
}
