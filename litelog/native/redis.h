/* The commands in Redis's append-only files. */

/* The number in a line that begins with `mark`, and the place after the line; null if it is not sure. */
static inline bytes take_line(bytes at, bytes end, uint8_t mark, int64_t *value)
{
    int64_t found = 0;
    bytes digits = at + 1;

    if (end - at < 4 || *at != mark)
        return 0;
    for (at++; at < end && *at >= '0' && *at <= '9' && at - digits < 9; at++)
        found = 10 * found + (*at - '0');
    if (at == digits || end - at < 2 || at[0] != '\r' || at[1] != '\n')
        return 0;
    *value = found;
    return at + 2;
}

static int holds(const int64_t *names, int64_t count, int64_t name)
{
    for (int64_t each = 0; each < count; each++)
        if (names[each] == name)
            return 1;
    return 0;
}

/* A name of up to 8 letters in upper case, as a number; 0 for a longer one. */
static inline int64_t read_name(bytes at, int64_t length)
{
    uint64_t word = 0;

    if (length > 8)
        return 0;
    memcpy(&word, at, (size_t)length);
    return (int64_t)(word & 0xDFDFDFDFDFDFDFDF);
}

enum { LINE_BYTES = 64, AHEAD_BYTES = 4096 };

/* Asks for the bytes after `at`, so that they are on their way to the cache before a walk that skips words comes there.
   `asked` is where that ended the last time; returns where it ends now. */
static inline bytes ask_ahead(bytes at, bytes end, bytes asked)
{
    bytes stop = end - at > AHEAD_BYTES ? at + AHEAD_BYTES : end;

    for (asked = asked < at ? at : asked; stop - asked >= LINE_BYTES; asked += LINE_BYTES)
        __builtin_prefetch(asked);
    return asked;
}

/*
 * Commands of Redis from the front of `data` on, up to the first that is not whole, or an annotation.
 *
 * no_key and second_key: names of commands without a key, and of those whose key is the second word after the name.
 * Writes six columns of `capacity` numbers each: where a command starts and ends, where its key starts, the key's
 * length (-1 for none, and then its start is 0), the command's name, and its number of words. Returns the number of
 * commands.
 */
int64_t litelog_find_commands(bytes data, int64_t size, const int64_t *no_key, int64_t no_keys,
                              const int64_t *second_key, int64_t second_keys, int64_t *columns, int64_t capacity)
{
    bytes position = data, end = data + size, asked = data;
    int64_t count = 0;

    for (; count < capacity; count++) {
        int64_t words, length, name = 0, key_word = 1, key_start = 0, key_length = -1;
        bytes at = take_line(position, end, '*', &words);

        if (!at || !words)
            break;
        asked = ask_ahead(at, end, asked);
        for (int64_t word = 0; word < words; word++) {
            at = take_line(at, end, '$', &length);
            if (!at || length > end - at - 2 || at[length] != '\r' || at[length + 1] != '\n')
                return count;
            if (word == 0) {
                name = read_name(at, length);
                key_word = holds(no_key, no_keys, name) ? 0 : holds(second_key, second_keys, name) ? 2 : 1;
            } else if (word == key_word) {
                key_start = at - data;
                key_length = length;
            }
            at += length + 2;
        }
        columns[count] = position - data;
        columns[capacity + count] = at - data;
        columns[2 * capacity + count] = key_start;
        columns[3 * capacity + count] = key_length;
        columns[4 * capacity + count] = name;
        columns[5 * capacity + count] = words;
        position = at;
    }
    return count;
}
