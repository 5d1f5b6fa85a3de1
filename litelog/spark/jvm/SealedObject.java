package litelog.spark;

import com.fasterxml.jackson.databind.JsonNode;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.ArrayList;
import java.util.Base64;
import java.util.List;
import java.util.zip.CRC32C;
import net.jpountz.lz4.LZ4Factory;
import net.jpountz.lz4.LZ4SafeDecompressor;

/** A sealed segment whose footer was read and agrees with the snapshot's entry (litelog/objects/README.md). */
final class SealedObject implements AutoCloseable {
  private static final int WHOLE_BYTES = 1 << 20;
  private static final int TAIL_BYTES = 64 << 10;
  private static final int GROUP_BYTES = 4 << 20;
  private static final int MOST_FRAME_BYTES = 4 << 20;
  private static final int MOST_RUN_BYTES = 36 << 20;
  private static final int MOST_DOCUMENT_BYTES = 128 << 20;
  static final long NONE = Long.MIN_VALUE;

  /** Frames [start, stop), decoded together. */
  record Run(int start, int stop) {}

  /** Adjacent runs that one request reads. {@code at}: where their bytes begin in the object. */
  record Group(List<Run> runs, long at, int bytes) {}

  final ReadPlan.SealedPart part;
  private final ObjectBytes input;
  private final TaskMetrics metrics;
  private final byte[] whole;
  private long[] sizes;
  private long[] lengths;
  private long[] firsts;
  private long[] records;
  private long[] lowests;
  private long[] highests;
  private long[] crcs;
  private long[] checksums;
  private long[] stored;
  private boolean[] inner;
  private long[] starts;
  private long[] offsets;
  private long follows;

  private SealedObject(ReadPlan.SealedPart part, ObjectBytes input, TaskMetrics metrics) throws IOException {
    this.part = part;
    this.input = input;
    this.metrics = metrics;
    whole = part.size() <= WHOLE_BYTES ? read(0, (int) part.size()) : null;
    check(part.facts(), footer());
  }

  static SealedObject open(ReadPlan.SealedPart part, String python, TaskMetrics metrics) throws IOException {
    ObjectBytes input = ObjectBytes.open(part, python);
    try {
      return new SealedObject(part, input, metrics);
    } catch (IOException | RuntimeException error) {
      input.close();
      throw error;
    }
  }

  private byte[] read(long at, int length) throws IOException {
    byte[] found = input.read(at, length);
    metrics.bytes.addAndGet(length);
    metrics.requests.incrementAndGet();
    return found;
  }

  byte[] read(Group group) throws IOException {
    return whole == null ? read(group.at, group.bytes) : java.util.Arrays.copyOfRange(
        whole, (int) group.at, (int) group.at + group.bytes);
  }

  private JsonNode footer() throws IOException {
    int held = (int) Math.min(part.size(), TAIL_BYTES);
    byte[] tail = whole != null ? whole : read(part.size() - held, held);
    ByteBuffer bytes = ByteBuffer.wrap(tail).order(ByteOrder.LITTLE_ENDIAN);
    int end = tail.length - 16;
    int length = bytes.getInt(end + 4);
    require(bytes.getShort(end) == 1 && bytes.getShort(end + 2) == 0 && bytes.getInt(end + 12) == 0x6c616573, "trailer");
    require(length >= 24 && length <= part.size() && length <= 64 << 20, "length of the footer");
    if (length > tail.length) {
      tail = read(part.size() - length, length);
      bytes = ByteBuffer.wrap(tail).order(ByteOrder.LITTLE_ENDIAN);
    }
    int at = tail.length - length;
    require(crc(tail, at, length - 8) == bytes.getInt(tail.length - 8), "CRC-32C of the footer");
    require(bytes.getInt(at) == 0x184D2A50 && bytes.getInt(at + 4) == length - 8, "frame of the footer");
    List<int[]> frames = new ArrayList<>();
    long size = 0;
    for (int place = at + 8; place < tail.length - 16; ) {
      int content = LzFrame.contentSize(tail, place);
      int stop = LzFrame.end(tail, place, tail.length - 16);
      frames.add(new int[] {place, stop, content});
      size += content;
      place = stop;
    }
    require(size <= MOST_DOCUMENT_BYTES, "size of the footer's document");
    byte[] text = new byte[(int) size];
    int filled = 0;
    for (int[] frame : frames) {
      LzFrame.decompress(tail, frame[0], frame[1], text, filled, frame[2]);
      filled += frame[2];
    }
    JsonNode document = ReadPlan.MAPPER.readTree(text);
    require(sum(column(document.at("/frames/sizes"), false)) + length == part.size(), "size of the object");
    return document;
  }

  private void check(JsonNode entry, JsonNode footer) throws IOException {
    for (String name : new String[] {
        "generation", "file", "length", "digest", "crc", "first", "next", "records", "lowest", "highest"}) {
      require(entry.get(name).asText().equals(footer.get(name).asText()), name);
    }
    long[] times = column(footer.at("/marks/times"), true);
    require(entry.get("sealed_index").asText().equals(footer.get("index").asText()), "index");
    require(entry.get("exact").equals(footer.at("/marks/exact")), "exact");
    require(entry.get("shipped_first").asLong() == times[0], "time of the first shipping");
    require(entry.get("shipped_last").asLong() == times[times.length - 1], "time of the last shipping");
    follows = entry.get("follows").asLong(-1);
    JsonNode frames = footer.get("frames");
    sizes = column(frames.get("sizes"), false);
    lengths = column(frames.get("lengths"), false);
    firsts = column(frames.get("firsts"), true);
    records = column(frames.get("records"), false);
    lowests = column(frames.get("lowests"), true);
    highests = column(frames.get("highests"), true);
    crcs = column(frames.get("crcs"), false);
    checksums = column(frames.get("checksums"), false);
    stored = column(frames.get("stored"), false);
    inner = new boolean[sizes.length];
    for (long number : column(frames.get("inner"), true)) {
      inner[(int) number] = true;
    }
    starts = new long[sizes.length];
    offsets = new long[sizes.length];
    long total = 0;
    for (int number = 0; number < sizes.length; number++) {
      require(sizes[number] > 0 && sizes[number] <= MOST_FRAME_BYTES + (64 << 10), "size of a frame");
      require(lengths[number] > 0 && lengths[number] <= MOST_FRAME_BYTES, "length of a frame");
      starts[number] = number == 0 ? 0 : starts[number - 1] + sizes[number - 1];
      offsets[number] = number == 0 ? 0 : offsets[number - 1] + lengths[number - 1];
      total = Crc.combine(total, crcs[number], lengths[number]);
    }
    require(sum(lengths) == part.length() && sum(records) == part.records(), "sums of the frames");
    require(total == entry.get("crc").asLong(), "CRC-32C of the frames");
  }

  /** Groups the runs that may hold records within the bounds. */
  List<Group> groups(Bounds bounds) {
    List<Group> groups = new ArrayList<>();
    List<Run> held = new ArrayList<>();
    for (int number = 0; number < sizes.length; ) {
      Run run = new Run(number, runEnd(number));
      number = run.stop;
      boolean mine = part.start() <= offsets[run.start] && offsets[run.start] < part.stop();
      boolean wanted = mine && records[run.start] > 0
          && bounds.overlaps(firsts[run.start], next(run) - 1, lowests[run.start], highests[run.start]);
      if (mine) {
        (wanted ? metrics.frames : metrics.skipped).addAndGet(run.stop - run.start);
      }
      if (!wanted) {
        continue;
      }
      if (!held.isEmpty() && (held.get(held.size() - 1).stop != run.start
          || end(run) - offsets[held.get(0).start] > GROUP_BYTES)) {
        groups.add(group(held));
        held = new ArrayList<>();
      }
      held.add(run);
    }
    if (!held.isEmpty()) {
      groups.add(group(held));
    }
    return groups;
  }

  private int runEnd(int number) {
    int stop = number + 1;
    while (stop < sizes.length && inner[stop - 1]) {
      stop++;
    }
    return stop;
  }

  private Group group(List<Run> runs) {
    int last = runs.get(runs.size() - 1).stop - 1;
    long at = starts[runs.get(0).start];
    return new Group(runs, at, Math.toIntExact(starts[last] + sizes[last] - at));
  }

  long offset(Run run) {
    return offsets[run.start];
  }

  /** The offset in the log segment at which the run ends. */
  long end(Run run) {
    return offsets[run.stop - 1] + lengths[run.stop - 1];
  }

  /** The sequence of the run's first record. Throws IOException if it does not continue the log segment before. */
  long first(Run run) throws IOException {
    require(run.start > 0 || follows < 0 || firsts[0] == follows, "first sequence");
    return firsts[run.start];
  }

  long records(Run run) {
    return records[run.start];
  }

  /** The sequence after the run. */
  long next(Run run) {
    return run.stop == sizes.length ? part.next() : firsts[run.stop];
  }

  boolean isWithin(Run run, Bounds bounds) {
    return !bounds.hasKeys() && bounds.holdsSequences(firsts[run.start], next(run) - 1)
        && bounds.holdsTimes(lowests[run.start], highests[run.start]);
  }

  /** Decodes a run from {@code body} and checks it against the footer. Returns bytes of the log segment. */
  byte[] decode(Group group, byte[] body, Run run, byte[] reused) throws IOException {
    int size = Math.toIntExact(end(run) - offset(run));
    require(size <= MOST_RUN_BYTES, "length of a run");
    byte[] data = reused.length >= size ? reused : new byte[size];
    int filled = 0;
    for (int number = run.start; number < run.stop; number++) {
      int at = (int) (starts[number] - group.at);
      int end = at + (int) sizes[number];
      int length = (int) lengths[number];
      require(crc(body, at, end - at) == (int) stored[number], "CRC-32C of a frame's bytes");
      require(LzFrame.contentSize(body, at) == length && LzFrame.end(body, at, end) == end, "frame");
      require(ByteBuffer.wrap(body, end - 4, 4).order(ByteOrder.LITTLE_ENDIAN).getInt() == (int) checksums[number],
          "content checksum of a frame");
      LzFrame.decompress(body, at, end, data, filled, length);
      require(crc(data, filled, length) == (int) crcs[number], "CRC-32C of a frame");
      filled += length;
    }
    return data;
  }

  @Override
  public void close() throws IOException {
    input.close();
  }

  private static long[] column(JsonNode written, boolean differences) throws IOException {
    long[] values;
    if (written.size() == 2 && written.get(1).isTextual()) {
      ByteBuffer packed =
          ByteBuffer.wrap(Base64.getDecoder().decode(written.get(1).asText())).order(ByteOrder.LITTLE_ENDIAN);
      values = new long[1 + packed.remaining() / 4];
      for (int number = 1; number < values.length; number++) {
        values[number] = packed.getInt();
      }
      values[0] = written.get(0).asLong();
    } else {
      values = new long[written.size()];
      for (int number = 0; number < values.length; number++) {
        JsonNode value = written.get(number);
        require(value.isNull() || value.canConvertToLong(), "number in the footer");
        values[number] = value.isNull() ? NONE : value.asLong();
      }
    }
    long before = 0;
    for (int number = 0; differences && number < values.length; number++) {
      before = values[number] == NONE ? before : Math.addExact(before, values[number]);
      values[number] = values[number] == NONE ? NONE : before;
    }
    return values;
  }

  private static long sum(long[] values) {
    return java.util.Arrays.stream(values).sum();
  }

  static int crc(byte[] bytes, int at, int length) {
    CRC32C crc = new CRC32C();
    crc.update(bytes, at, length);
    return (int) crc.getValue();
  }

  /** Throws IOException if a check fails. Python then reads the bytes again, and decides. */
  static void require(boolean holds, String what) throws IOException {
    if (!holds) {
      throw new IOException(what + " is not what it should be");
    }
  }

  /** An LZ4 frame as litelog writes it. Python reads frames with linked blocks. */
  private static final class LzFrame {
    private static final LZ4SafeDecompressor LZ4 = LZ4Factory.fastestInstance().safeDecompressor();

    static int contentSize(byte[] bytes, int at) throws IOException {
      ByteBuffer head = ByteBuffer.wrap(bytes).order(ByteOrder.LITTLE_ENDIAN);
      require(head.getInt(at) == 0x184D2204 && bytes[at + 4] == 0x6C && (bytes[at + 5] & 0x8F) == 0, "LZ4 frame");
      long size = head.getLong(at + 6);
      require(size > 0 && size <= MOST_FRAME_BYTES, "content size of an LZ4 frame");
      return (int) size;
    }

    /** The end of the frame that begins at {@code at}. */
    static int end(byte[] bytes, int at, int limit) throws IOException {
      ByteBuffer view = ByteBuffer.wrap(bytes).order(ByteOrder.LITTLE_ENDIAN);
      int place = at + 15;
      for (int word = view.getInt(place); word != 0; word = view.getInt(place)) {
        place += 4 + (word & 0x7FFFFFFF);
        require(place > at && place <= limit - 8, "block of an LZ4 frame");
      }
      return place + 8;
    }

    static void decompress(byte[] bytes, int at, int end, byte[] target, int filled, int length) throws IOException {
      ByteBuffer view = ByteBuffer.wrap(bytes).order(ByteOrder.LITTLE_ENDIAN);
      int place = at + 15;
      int to = filled;
      for (int word = view.getInt(place); word != 0; word = view.getInt(place)) {
        int size = word & 0x7FFFFFFF;
        place += 4;
        require(size <= end - place, "block of an LZ4 frame");
        if (word < 0) {
          require(size <= filled + length - to, "stored block of an LZ4 frame");
          System.arraycopy(bytes, place, target, to, size);
          to += size;
        } else {
          to += LZ4.decompress(bytes, place, size, target, to, filled + length - to);
        }
        place += size;
      }
      require(to == filled + length, "content of an LZ4 frame");
    }
  }

  /** Computes the CRC-32C of two runs of bytes from the CRC-32C of each. */
  private static final class Crc {
    private static final int[] POWERS = new int[32];

    static {
      POWERS[0] = 1 << 30;
      for (int number = 1; number < 32; number++) {
        POWERS[number] = multiply(POWERS[number - 1], POWERS[number - 1]);
      }
    }

    static long combine(long first, long second, long secondBytes) {
      int power = 1 << 31;
      int number = 3;
      for (long left = secondBytes; left != 0; left >>= 1, number++) {
        power = (left & 1) == 0 ? power : multiply(POWERS[number & 31], power);
      }
      return (multiply(power, (int) first) ^ (int) second) & 0xFFFFFFFFL;
    }

    private static int multiply(int left, int right) {
      int product = 0;
      for (int bit = 31; bit >= 0; bit--) {
        product ^= (left >> bit & 1) == 0 ? 0 : right;
        right = (right & 1) == 0 ? right >>> 1 : right >>> 1 ^ 0x82F63B78;
      }
      return product;
    }
  }
}
