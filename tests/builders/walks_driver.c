/* Calls each function of walks.c with random and damaged buffers, each of its exact size, so that a sanitizer sees every
   byte that is read or written outside of one. Arguments: a seed, and a number of rounds. */

#include "walks.c"

#include <stdio.h>
#include <stdlib.h>

static uint64_t state;

static uint64_t draw(uint64_t below)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return below ? state % below : 0;
}

static void *fresh(int64_t size)
{
    void *found = malloc((size_t)(size ? size : 1));

    if (!found)
        abort();
    return found;
}

/* A buffer without a byte to spare: sanitizers guard its end. */
static uint8_t *exact(const uint8_t *data, int64_t size)
{
    uint8_t *found = size ? fresh(size) : 0;

    if (size)
        memcpy(found, data, (size_t)size);
    return found;
}

static uint8_t *put_varint(uint8_t *at, uint64_t raw)
{
    for (; raw >= 0x80; raw >>= 7)
        *at++ = (uint8_t)(raw | 0x80);
    *at++ = (uint8_t)raw;
    return at;
}

static uint8_t *put_record(uint8_t *at, uint64_t offset)
{
    uint8_t body[600], *end = body;

    *end++ = 0;
    end = put_varint(end, draw(2) ? draw(200) : draw(0));
    end = put_varint(end, 2 * offset);
    for (int entry = 0; entry < 2; entry++) {
        int64_t length = (int64_t)draw(draw(2) ? 4 : 200) - 1;

        end = put_varint(end, length < 0 ? 1 : 2 * (uint64_t)length);
        for (int64_t byte = 0; byte < length; byte++)
            *end++ = (uint8_t)draw(256);
    }
    *end++ = 0;
    at = put_varint(at, 2 * (uint64_t)(end - body));
    memcpy(at, body, (size_t)(end - body));
    return at + (end - body);
}

static uint8_t *put_command(uint8_t *at)
{
    int words = 1 + (int)draw(4);

    at += sprintf((char *)at, "*%d\r\n", words);
    while (words--) {
        int length = (int)draw(draw(2) ? 9 : 100);

        at += sprintf((char *)at, "$%d\r\n", length);
        while (length--)
            *at++ = (uint8_t)draw(256);
        *at++ = '\r';
        *at++ = '\n';
    }
    return at;
}

static uint8_t *put_frame(uint8_t *at, const int64_t *layout)
{
    int64_t total = layout[3] + (int64_t)draw(draw(2) ? 20 : 200);
    uint32_t value = (uint32_t)(total - layout[2]);

    for (int64_t byte = 0; byte < total; byte++)
        at[byte] = (uint8_t)draw(256);
    value = layout[1] ? __builtin_bswap32(value) : value;
    memcpy(at + layout[0], &value, 4);
    if (layout[5]) {
        int64_t place = layout[7] < 0 ? total + layout[7] : layout[7], end = layout[7] < 0 ? place : total;

        value = checksum(layout[5] == 1 ? &crc32c : &crc32, at + layout[6], end - layout[6]);
        value = layout[1] ? __builtin_bswap32(value) : value;
        memcpy(at + place, &value, 4);
    }
    return at + total;
}

static void damage(uint8_t *data, int64_t *size)
{
    if (draw(3) == 0)
        *size = (int64_t)draw((uint64_t)*size + 1);
    for (uint64_t flips = draw(4); *size && flips; flips--)
        data[draw((uint64_t)*size)] ^= (uint8_t)(1 << draw(8));
    if (*size && draw(8) == 0)
        memset(data + draw((uint64_t)*size), draw(2) ? 0xFF : 0, 1);
}

static int64_t odd_number(int64_t size)
{
    switch (draw(8)) {
    case 0:
        return INT64_MIN + (int64_t)draw(3);
    case 1:
        return INT64_MAX - (int64_t)draw(3);
    case 2:
        return -(int64_t)draw(9);
    default:
        return (int64_t)draw((uint64_t)size + 3);
    }
}

static const int64_t layouts[][10] = {
    {5, 0, 13, 13, 1 << 20, 0, 0, 0, 9, 4},  {4, 0, 12, 12, 1 << 20, 1, 0, -4, 8, 4},
    {5, 1, 9, 10, 1 << 20, 2, 9, 1, 9, 0},   {0, 1, 4, 12, 1 << 20, 2, 8, -4, 4, 8},
    {8, 1, 12, 61, 1 << 20, 1, 21, 17, 0, 0}, /* Kafka's */
};

static int64_t try_frames(uint8_t *work)
{
    int64_t layout[10], fields[6] = {0, 8, 4, -4, 8, 2}, size, capacity, found, copies = (int64_t)draw(2), room;
    uint8_t *end = work, *data, *values;
    int64_t *bounds, *columns;

    memcpy(layout, layouts[draw(5)], sizeof layout);
    for (uint64_t frames = draw(20); frames; frames--)
        end = put_frame(end, layout);
    size = end - work;
    damage(work, &size);
    data = exact(work, size);
    if (draw(4) == 0)
        layout[draw(10)] = odd_number(80);
    if (draw(4) == 0)
        fields[draw(6)] = odd_number(20);
    capacity = layout[3] > 0 ? size / layout[3] : 3;
    room = draw(4) ? size : (int64_t)draw((uint64_t)size + 1);
    bounds = fresh(8 * (capacity + 1));
    columns = fresh(8 * 5 * capacity);
    values = fresh(room);
    found = litelog_take_frames(data, size, draw(9) ? 0 : odd_number(size), layout, fields, 3, bounds, columns, capacity,
                                values, room, copies);
    free(values);
    free(columns);
    free(bounds);
    free(data);
    return found;
}

/* Kafka's batches with records in them. */
static uint8_t *put_batch(uint8_t *at)
{
    uint32_t value, records = (uint32_t)draw(9);
    uint8_t *end = at + BATCH_HEADER_BYTES;

    memset(at, 0, BATCH_HEADER_BYTES);
    at[16] = 2;
    at[22] = (uint8_t)(draw(6) ? draw(2) * APPEND_TIME : draw(64));
    at[26] = (uint8_t)(draw(30) ? 9 : draw(9));
    for (uint32_t record = 0; record < records; record++)
        end = put_record(end, draw(30) ? record : draw(200));
    value = __builtin_bswap32(draw(20) ? records : (uint32_t)odd_number(9));
    memcpy(at + 57, &value, 4);
    value = __builtin_bswap32((uint32_t)(end - at - 12));
    memcpy(at + 8, &value, 4);
    value = __builtin_bswap32(checksum(&crc32c, at + 21, end - at - 21));
    memcpy(at + 17, &value, 4);
    return end;
}

static int64_t try_batches(uint8_t *work)
{
    int64_t layout[10], size, capacity, rows, found, value_room, key_room, headers, places[4];
    int64_t filled[OLDER_RECORDS + 1] = {[LAST_OFFSET] = draw(9) ? INT64_MAX - 1 : odd_number(99), [LATEST] = INT64_MIN};
    uint8_t *end = work, *data, *content;
    int64_t *bounds, *attributes, *producers, *after, *columns;

    memcpy(layout, layouts[4], sizeof layout);
    for (uint64_t batches = draw(5); batches; batches--)
        end = put_batch(end);
    size = end - work;
    damage(work, &size);
    data = exact(work, size);
    if (draw(9) == 0)
        layout[draw(10)] = odd_number(80);
    capacity = draw(4) ? size / 61 : (int64_t)draw(3);
    rows = draw(4) ? 40 : (int64_t)draw(40);
    value_room = draw(4) ? size : (int64_t)draw((uint64_t)size + 1);
    key_room = draw(4) ? size : (int64_t)draw((uint64_t)size + 1);
    bounds = fresh(8 * (capacity + 1));
    attributes = fresh(8 * capacity);
    producers = fresh(8 * capacity);
    after = fresh(8 * capacity);
    columns = fresh(88 * rows);
    content = fresh(value_room + key_room);
    filled[EARLIEST] = INT64_MAX;
    filled[TAKEN_BATCHES] = draw(9) ? 0 : -1;
    found = litelog_take_batches(data, size, draw(9) ? 0 : odd_number(size), layout, bounds, attributes, producers, after,
                                 capacity, columns, rows, content, value_room, key_room, filled);
    headers = litelog_find_headers(data, size, draw(9) ? 0 : odd_number(size), draw(9) ? size - 60 : odd_number(size), places,
                                   4);
    for (int64_t each = 0; each < headers; each++)
        if (places[each] < 0 || places[each] > size - 61)
            abort();
    free(content);
    free(columns);
    free(after);
    free(producers);
    free(attributes);
    free(bounds);
    free(data);
    return found < 0 ? found : filled[ROWS];
}

static int64_t try_records(uint8_t *work)
{
    int64_t counts[3], begins[3], ends[3], batches = 1 + (int64_t)draw(3), total = 0, size, found;
    uint8_t *end = work, *data;
    int64_t *columns;

    for (int64_t batch = 0; batch < batches; batch++) {
        begins[batch] = end - work;
        counts[batch] = (int64_t)draw(9);
        for (int64_t record = 0; record < counts[batch]; record++)
            end = put_record(end, draw(200));
        ends[batch] = end - work;
        total += counts[batch];
    }
    size = end - work;
    damage(work, &size);
    data = exact(work, size);
    if (draw(4) == 0)
        (draw(2) ? begins : ends)[draw((uint64_t)batches)] = odd_number(size);
    if (draw(4) == 0)
        counts[draw((uint64_t)batches)] = odd_number(9);
    columns = fresh(80 * total);
    found = litelog_find_records(data, size, begins, ends, counts, batches, columns, total);
    free(columns);
    free(data);
    return found;
}

static int64_t try_commands(uint8_t *work)
{
    int64_t names[2] = {0x544553, 0x50554F524758}, size, capacity, found;
    uint8_t *end = work, *data;
    int64_t *columns;

    for (uint64_t commands = draw(12); commands; commands--)
        end = put_command(end);
    size = end - work;
    damage(work, &size);
    data = exact(work, size);
    capacity = draw(4) ? size / 10 : (int64_t)draw(3);
    columns = fresh(48 * capacity);
    found = litelog_find_commands(data, size, names, 1, names + 1, 1, columns, capacity);
    free(columns);
    free(data);
    return found;
}

static int64_t try_entries(uint8_t *work)
{
    int64_t size = (int64_t)draw(3000), count = (int64_t)draw(20), room = 0, found;
    int64_t most = (int64_t)draw((uint64_t)count + 1);
    int64_t *starts = fresh(8 * count), *lengths = fresh(8 * count), *breaks = fresh(8 * most);
    int32_t *offsets = fresh(4 * (count + 1));
    uint8_t *data = exact(work, size), *gathered;

    for (int64_t entry = 0; entry < count; entry++) {
        starts[entry] = draw(30) ? (int64_t)draw((uint64_t)size + 1) : odd_number(size);
        lengths[entry] = draw(30) ? (int64_t)draw((uint64_t)size + 1) - 1 : odd_number(size);
        if (draw(30) && starts[entry] >= 0 && starts[entry] <= size && lengths[entry] > size - starts[entry])
            lengths[entry] = size - starts[entry];
        if (lengths[entry] > 0 && lengths[entry] <= size)
            room += lengths[entry];
    }
    room = draw(4) ? room : (int64_t)draw((uint64_t)room + 1);
    gathered = fresh(room);
    found = litelog_gather(data, size, starts, lengths, count, offsets, gathered, room);
    found = found < 0 ? found : litelog_find_breaks(starts, lengths, count, breaks, most);
    free(starts);
    free(lengths);
    free(breaks);
    free(offsets);
    free(data);
    free(gathered);
    return found;
}

/* A commit of litelog's own format. */
static uint8_t *put_commit(uint8_t *at)
{
    uint64_t flags = draw(4), count = 1 + draw(5), data_bytes = 0, length, body;
    uint8_t *values = at + 40 + (flags & STAMPED ? 8 * count : 0), *keys = values + 4 * count, *end;

    memset(at, 0, 40 + 16 * count);
    at[16] = (uint8_t)count;
    at[22] = 1;
    at[23] = (uint8_t)flags;
    for (uint64_t each = 0; each < count; each++, data_bytes += length) {
        length = draw(20);
        memcpy(values + 4 * each, &length, 4);
    }
    memcpy(at + 24, &data_bytes, 8);
    end = keys + (flags & KEYED ? 4 * count : 0);
    for (uint64_t each = 0; flags & KEYED && each < count; each++) {
        int32_t key_length = (int32_t)draw(9) - 1;

        memcpy(keys + 4 * each, &key_length, 4);
        data_bytes += key_length > 0 ? (uint64_t)key_length : 0;
    }
    while (data_bytes--)
        *end++ = (uint8_t)draw(256);
    do
        *end++ = 0;
    while ((end - at + 3) % 8 || draw(30) == 0);
    end += 3;
    body = (uint64_t)(end - at - 26);
    memcpy(at + 18, &body, 4);
    return end;
}

static int64_t try_bodies(uint8_t *work)
{
    int64_t positions[4], commits = 1 + (int64_t)draw(4), total = 0, size, range[2], found;
    uint8_t *end = work, *data;
    int64_t *columns, *firsts = fresh(8 * commits);

    for (int64_t each = 0; each < commits; each++) {
        positions[each] = end - work;
        end = put_commit(end);
        total += work[positions[each] + 16];
    }
    size = end - work;
    if (draw(2))
        damage(work, &size);
    data = exact(work, size);
    if (draw(9) == 0)
        positions[draw((uint64_t)commits)] = odd_number(size);
    if (draw(9) == 0)
        total = (int64_t)draw(20);
    columns = draw(4) ? fresh(48 * total) : 0;
    found = litelog_take_bodies(data, size, positions, commits, (int64_t)(draw(9) > 0), columns, total, firsts, range);
    free(columns);
    free(firsts);
    free(data);
    return found;
}

/* Commits with sequences and checksums. Without damage, all of them are found. */
static int64_t try_commits(uint8_t *work)
{
    int64_t commits = 1 + (int64_t)draw(4), size, records, flags, capacity, total, found, start;
    int64_t run[4] = {(int64_t)draw(9), 0}, *columns, *bounds, *firsts, sequence = run[0], keyed;
    int64_t again[4] = {sequence, 0}, facts[4];
    uint8_t *end = work, *data;

    for (int64_t each = 0; each < commits; each++) {
        uint8_t *at = end;
        uint32_t value;

        end = put_commit(at);
        memcpy(at, &sequence, 8);
        sequence += at[16];
        value = checksum(&crc32c, at, end - at - 4);
        memcpy(end - 4, &value, 4);
    }
    size = end - work;
    if (draw(2))
        damage(work, &size);
    data = exact(work, size);
    start = draw(9) ? 0 : odd_number(size);
    capacity = litelog_count_commits(data, size, start, &records, &flags);
    keyed = draw(9) ? flags & KEYED : (int64_t)draw(2);
    capacity = draw(9) ? capacity : (int64_t)draw((uint64_t)capacity + 1);
    total = draw(9) ? records : (int64_t)draw((uint64_t)records + 1);
    columns = draw(4) ? fresh((keyed ? 48 : 32) * total) : 0;
    bounds = fresh(8 * (capacity + 1));
    firsts = fresh(8 * capacity);
    found = litelog_take_commits(data, size, start, draw(9) ? 1 << 20 : odd_number(size), keyed, columns, total, bounds,
                                 firsts, capacity, run);
    if (found > capacity || (found && (bounds[found] > size || firsts[found - 1] >= total)))
        abort();
    if (litelog_check_commits(data, size, start, 1 << 20, again, facts) &&
        (facts[1] > size || (uint32_t)facts[3] != checksum(&crc32c, data, facts[1])))
        abort();
    free(columns);
    free(bounds);
    free(firsts);
    free(data);
    return found ? found : -1;
}

/* A message of NetLog: a plain one, or a set of others. */
static uint8_t *put_message(uint8_t *at, int may_hold_others)
{
    uint8_t *end = at + MESSAGE_BYTES;
    uint32_t value;

    *at = (uint8_t)(may_hold_others ? draw(draw(9) ? 2 : 4) : 0);
    if (may_hold_others && draw(2))
        for (uint64_t held = draw(4); held; held--)
            end = put_message(end, 0);
    else
        for (uint64_t length = draw(draw(2) ? 3 : 50); length; length--)
            *end++ = (uint8_t)draw(256);
    value = __builtin_bswap32((uint32_t)(end - at - MESSAGE_BYTES));
    memcpy(at + 5, &value, 4);
    value = __builtin_bswap32(checksum(&crc32, at + MESSAGE_BYTES, end - at - MESSAGE_BYTES));
    memcpy(at + 1, &value, 4);
    return end;
}

static int64_t try_messages(uint8_t *work)
{
    int64_t layout[10] = {5, 1, 9, 10, 1 << 20, 2, 9, 1, 0, 0}, filled[5] = {0}, size, capacity, most, room, found;
    int64_t *bounds, *after, *suspects, *columns, copies = (int64_t)draw(4), heads[6], begun;
    uint8_t *end = work, *data, *values;

    for (uint64_t messages = draw(9); messages; messages--)
        end = put_message(end, 1);
    size = end - work;
    damage(work, &size);
    data = exact(work, size);
    if (draw(9) == 0)
        layout[draw(10)] = odd_number(80);
    capacity = draw(4) ? size / 10 : (int64_t)draw(3);
    most = draw(4) ? size / 9 : (int64_t)draw(3);
    room = draw(4) ? size : (int64_t)draw((uint64_t)size + 1);
    bounds = fresh(8 * (capacity + 1));
    after = fresh(8 * capacity);
    suspects = fresh(8 * capacity);
    columns = fresh(16 * most);
    values = fresh(room);
    found = litelog_take_messages(data, size, draw(9) ? 0 : odd_number(size), layout, bounds, after, suspects, capacity,
                                  columns, most, values, room, copies, filled);
    begun = litelog_find_message_heads(data, size, draw(9) ? 0 : odd_number(size), 1 << 20, heads, heads + 3, 3);
    for (int64_t each = 0; each < begun; each++)
        if (heads[each] < 0 || heads[each] + 9 + heads[3 + each] > size)
            abort();
    free(values);
    free(columns);
    free(suspects);
    free(after);
    free(bounds);
    free(data);
    return found;
}

/* Two runs hashed at a time give what each gives alone. */
static int64_t try_digests(uint8_t *work)
{
    int64_t size = (int64_t)draw(300), taken;
    uint8_t *data = exact(work, size), *other = exact(work + 300, size);
    uint32_t states[4][8] = {{0}};

    taken = litelog_hash(states[0], data, size);
    litelog_hash(states[1], other, size);
    if (litelog_hash_two(states[2], data, states[3], other, size) != taken || memcmp(states, states[2], 64))
        abort();
    free(data);
    free(other);
    return taken;
}

/* Makes a block of a part of the bytes, or of none. */
static int drop_bytes(const char *from, char *to, int size, int room, int acceleration)
{
    int kept = acceleration < size ? acceleration : size;

    if (kept > room)
        return 0;
    memcpy(to, from, (size_t)kept);
    return kept;
}

static int64_t try_frame_making(uint8_t *work)
{
    int64_t size = (int64_t)draw(300), room = size + 27 + (int64_t)draw(draw(2) ? 3 : 20), facts[2], found;
    uint8_t *data = exact(work, size), *into;

    room = draw(9) ? room : (int64_t)draw((uint64_t)room);
    into = fresh(room);
    found = litelog_make_frame(drop_bytes, (int64_t)draw(400), data, size, into, room, facts);
    if (found >= 0 && (found > room || facts[1] != checksum(&crc32c, into, found)))
        abort();
    litelog_combine(facts[0] = odd_number(9), odd_number(9), odd_number(9));
    free(into);
    free(data);
    return found;
}

/* As LZ4_decompress_safe: reads `size` bytes, and writes up to `room`. */
static int fill_bytes(const char *from, char *to, int size, int room)
{
    if (size > room)
        return -1;
    memset(to, 0, (size_t)room);
    memcpy(to, from, (size_t)size);
    return draw(9) ? room : size;
}

static int64_t try_frame_reading(uint8_t *work)
{
    int64_t length = 1 + (int64_t)draw(300), size, facts[2], found, crc, with_crc = (int64_t)draw(2);
    uint8_t *content = exact(work, length), *frame, *into;

    size = litelog_make_frame(drop_bytes, (int64_t)draw(400), content, length, work + 512, length + 27, facts);
    damage(work + 512, &size);
    frame = exact(work + 512, size);
    length = draw(9) ? length : odd_number(length);
    crc = draw(9) ? checksum(&crc32c, frame, size) : odd_number(9);
    into = fresh(length > 0 && length < 1 << 20 ? length : 0);
    found = litelog_read_frame(fill_bytes, frame, size, crc, into, length, with_crc, facts);
    if (found > 0 && found + length + 8 != size)
        abort();
    if (found >= 0 && facts[1] != (with_crc ? checksum(&crc32c, found ? frame + found : into, length) : 0))
        abort();
    free(into);
    free(frame);
    free(content);
    return found < 0 ? -1 : 1;
}

int main(int count, char **arguments)
{
    int64_t (*const tries[])(uint8_t *) = {try_frames,  try_records, try_commands,
                                           try_entries, try_batches, try_messages,
                                           try_bodies,  try_commits, try_frame_making,
                                           try_frame_reading, try_digests};
    int64_t good[11] = {0}, refused[11] = {0};
    uint8_t *work = fresh(1 << 16);
    long rounds = count > 2 ? atol(arguments[2]) : 1000;

    memset(work, 0, 1 << 16);
    state = (count > 1 ? strtoull(arguments[1], 0, 10) : 1) * 2 + 1;
    while (rounds--)
        for (int each = 0; each < 11; each++) {
            int64_t found = tries[each](work);

            good[each] += found > 0;
            refused[each] += found < 0;
        }
    for (int each = 0; each < 11; each++)
        printf("%lld %lld\n", (long long)good[each], (long long)refused[each]);
    free(work);
    return 0;
}
