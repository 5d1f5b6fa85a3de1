package litelog.spark;

import static litelog.spark.SealedObject.require;

import com.fasterxml.jackson.databind.JsonNode;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.Arrays;
import java.util.List;
import java.util.Locale;
import org.apache.spark.sql.execution.vectorized.ConstantColumnVector;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.vectorized.ColumnVector;
import org.apache.spark.sql.vectorized.ColumnarBatch;
import org.apache.spark.unsafe.types.UTF8String;

/** The records of a run of frames, as columns over its bytes. */
final class RecordColumns {
  private static final int SEGMENT_HEADER_BYTES = 64;
  private static final long SEGMENT_MAGIC = 0x0a676f6c6574696cL;
  private static final int BEFORE_BODY = 22;
  private static final int FIXED_BYTES = 40;

  /** The columns with a value for each record. All others are the same in all records of a sealed segment. */
  private static final List<String> OF_RECORDS = List.of("sequence", "timestamp", "offset", "key", "value");

  private final StructType schema;
  private SealedObject object;
  private byte[] data = new byte[1 << 21];
  private int count;
  private long[] sequences;
  private long[] times;
  private long[] offsets;
  private long[] keys;
  private long[] values;
  /** The same in the order of OF_RECORDS. Keys and values are places in {@code data}. */
  private long[][] filled = new long[OF_RECORDS.size()][0];

  RecordColumns(StructType schema) {
    this.schema = schema;
  }

  void begin(SealedObject next) {
    object = next;
  }

  /** The wanted records of a run. A later call overwrites them. Throws IOException if they contradict the footer. */
  ColumnarBatch load(ByteBuffer body, SealedObject.Run run) throws IOException {
    data = SealedObject.decode(body, run, data);
    grow(run.records());
    count = 0;
    ByteBuffer bytes = ByteBuffer.wrap(data, 0, run.length()).order(ByteOrder.LITTLE_ENDIAN);
    int at = 0;
    if (run.offset() == 0) {
      require(run.length() >= SEGMENT_HEADER_BYTES && bytes.getLong(0) == SEGMENT_MAGIC, "header of the log segment");
      at = SEGMENT_HEADER_BYTES;
    }
    while (at < run.length()) {
      at = loadCommit(bytes, at, run);
    }
    require(count == run.records() && run.first() + count == run.next(), "number of records");
    for (int row = 0; row < count; row++) {
      sequences[row] = run.first() + row;
      offsets[row] = run.offset() + (values[row] >>> Integer.SIZE);
    }
    if (!run.whole() || object.wanted().needsKey()) {
      keepWanted(object.wanted());
    }
    ColumnVector[] columns = Arrays.stream(schema.fields()).map(this::column).toArray(ColumnVector[]::new);
    return new ColumnarBatch(columns, count);
  }

  private void grow(int records) {
    if (filled[0].length < records) {
      filled = new long[filled.length][Math.max(records, 1 << 14)];
      sequences = filled[0];
      times = filled[1];
      offsets = filled[2];
      keys = filled[3];
      values = filled[4];
    }
  }

  private int loadCommit(ByteBuffer bytes, int at, SealedObject.Run run) throws IOException {
    int many = bytes.getShort(at + 16) & 0xFFFF;
    int stop = Math.addExact(at, Math.addExact(bytes.getInt(at + 18), BEFORE_BODY));
    int flags = bytes.get(at + 23);
    boolean follows = bytes.getLong(at) == run.first() + count;
    require(follows && many > 0 && count + many <= run.records(), "sequence of a commit");
    int stamps = (flags & 2) != 0 ? 8 * many : 0;
    int keyLengths = (flags & 1) != 0 ? 4 * many : 0;
    int lengths = at + FIXED_BYTES + stamps;
    long place = lengths + 4L * many + keyLengths;
    boolean isKnown = bytes.get(at + 22) == 1 && (flags & ~3) == 0;
    require(isKnown && place <= stop && stop + 4 <= bytes.limit(), "commit");
    if (stamps > 0) {
      bytes.slice(at + FIXED_BYTES, stamps).order(ByteOrder.LITTLE_ENDIAN).asLongBuffer().get(times, count, many);
    } else {
      Arrays.fill(times, count, count + many, bytes.getLong(at + 32));
    }
    if (keyLengths > 0) {
      place = loadPlaces(bytes, lengths + 4 * many, many, place, keys);
    } else {
      Arrays.fill(keys, count, count + many, -1);
    }
    place = loadPlaces(bytes, lengths, many, place, values);
    require(place <= stop && stop - place < 8, "length of a key or value");
    count += many;
    return stop + 4;
  }

  /** Fills places from lengths, where the first place begins at {@code from}. Returns the end of the last one. */
  private long loadPlaces(ByteBuffer bytes, int lengths, int many, long from, long[] places) {
    for (int number = 0; number < many; number++) {
      int length = bytes.getInt(lengths + 4 * number);
      places[count + number] = from << Integer.SIZE | length & 0xFFFFFFFFL;
      from += Math.max(0, length);
    }
    return from;
  }

  /** Moves the wanted records to the front. */
  private void keepWanted(SealedObject.Wanted wanted) {
    int kept = 0;
    for (int row = 0; row < count; row++) {
      int start = (int) (keys[row] >>> Integer.SIZE);
      if (wanted.holds(sequences[row], times[row]) && wanted.holdsKey(data, start, (int) keys[row])) {
        for (long[] column : filled) {
          column[kept] = column[row];
        }
        kept++;
      }
    }
    count = kept;
  }

  private ColumnVector column(StructField field) {
    String name = field.name().toLowerCase(Locale.ROOT);
    int number = OF_RECORDS.indexOf(name);
    if (number >= 0) {
      return new OfRecords(count, field, filled[number], data);
    }
    ConstantColumnVector column = new ConstantColumnVector(count, field.dataType());
    JsonNode value = object.constants().get(name);
    if (value.isTextual()) {
      column.setUtf8String(UTF8String.fromString(value.textValue()));
    } else {
      column.setLong(value.longValue());
    }
    return column;
  }

  /** Numbers; or bytes by their places, where the upper half is where they start, and the lower one their length. */
  static final class OfRecords extends ConstantColumnVector {
    private final boolean isBytes;
    private final long[] values;
    private final byte[] data;

    OfRecords(int size, StructField field, long[] values, byte[] data) {
      super(size, field.dataType());
      isBytes = field.dataType().equals(DataTypes.BinaryType);
      this.values = values;
      this.data = data;
    }

    @Override
    public boolean hasNull() {
      return isBytes;
    }

    @Override
    public boolean isNullAt(int number) {
      return isBytes && (int) values[number] < 0;
    }

    @Override
    public long getLong(int number) {
      return values[number];
    }

    @Override
    public byte[] getBinary(int number) {
      int start = (int) (values[number] >>> Integer.SIZE);
      int length = (int) values[number];
      return length < 0 ? null : Arrays.copyOfRange(data, start, start + length);
    }

    /** The bytes where they are, until the next run is loaded. */
    @Override
    public UTF8String getUTF8String(int number) {
      int length = (int) values[number];
      return length < 0 ? null : UTF8String.fromBytes(data, (int) (values[number] >>> Integer.SIZE), length);
    }
  }
}
