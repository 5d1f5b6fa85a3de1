package litelog.spark;

import static litelog.spark.SealedObject.require;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.Arrays;
import java.util.Locale;
import java.util.function.IntToLongFunction;
import java.util.stream.IntStream;
import org.apache.spark.sql.execution.vectorized.ConstantColumnVector;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.vectorized.ColumnVector;
import org.apache.spark.sql.vectorized.ColumnarBatch;
import org.apache.spark.unsafe.types.UTF8String;

/** The records of a run of frames, as columns over its bytes. Only the columns that the query needs are filled. */
final class RecordColumns {
  private static final int SEGMENT_HEADER_BYTES = 64;
  private static final long SEGMENT_MAGIC = 0x0a676f6c6574696cL;
  private static final int BEFORE_BODY = 22;
  private static final int FIXED_BYTES = 40;

  private final StructType schema;
  private Bounds bounds;
  private ReadPlan.Part part;
  private final boolean hasTimes;
  private boolean needsTimes;
  private boolean needsKeys;
  private final boolean needsValues;
  private byte[] data = new byte[1 << 21];
  private int count;
  private long[] times = new long[0];
  private int[] keyStarts = new int[0];
  private int[] keyLengths = new int[0];
  private int[] valueStarts = new int[0];
  private int[] valueLengths = new int[0];

  RecordColumns(StructType schema) {
    this.schema = schema;
    hasTimes = has("timestamp");
    needsValues = has("value") || has("offset");
  }

  /** Begins with a part, of which the records within the bounds are wanted. */
  void begin(ReadPlan.Part next, Bounds wanted) {
    part = next;
    bounds = wanted;
    needsKeys = has("key") || bounds.hasKeys();
  }

  private boolean has(String name) {
    return Arrays.stream(schema.fieldNames()).anyMatch(name::equalsIgnoreCase);
  }

  /** The wanted records of a run. A later call overwrites them. Throws IOException if they contradict the footer. */
  ColumnarBatch load(ByteBuffer body, SealedObject.Run run) throws IOException {
    data = SealedObject.decode(body, run, data);
    needsTimes = hasTimes || !run.whole() && (bounds.since != Long.MIN_VALUE || bounds.until != Long.MAX_VALUE);
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
    int[] rows = run.whole() && !bounds.hasKeys() ? null : wanted(run);
    int wanted = rows == null ? count : rows.length;
    ColumnVector[] columns = new ColumnVector[schema.length()];
    for (int number = 0; number < columns.length; number++) {
      columns[number] = column(schema.fields()[number], wanted, rows, run);
    }
    return new ColumnarBatch(columns, wanted);
  }

  private int loadCommit(ByteBuffer bytes, int at, SealedObject.Run run) throws IOException {
    require(at + 48 <= bytes.limit(), "commit");
    int many = bytes.getShort(at + 16) & 0xFFFF;
    int stop = Math.addExact(at, Math.addExact(bytes.getInt(at + 18), BEFORE_BODY));
    int flags = bytes.get(at + 23);
    boolean follows = bytes.getLong(at) == run.first() + count;
    require(follows && many > 0 && count + many <= run.records(), "sequence of a commit");
    require(stop > at + FIXED_BYTES && stop + 4 <= bytes.limit() && bytes.get(at + 22) == 1 && (flags & ~3) == 0,
        "commit");
    boolean stamped = (flags & 2) != 0;
    boolean keyed = (flags & 1) != 0;
    int place = at + FIXED_BYTES;
    require((long) many * (4 + (keyed ? 4 : 0) + (stamped ? 8 : 0)) <= stop - place, "columns of a commit");
    if (needsTimes && stamped) {
      bytes.slice(place, 8 * many).order(ByteOrder.LITTLE_ENDIAN).asLongBuffer().get(times, count, many);
    } else if (needsTimes) {
      Arrays.fill(times, count, count + many, bytes.getLong(at + 32));
    }
    place += stamped ? 8 * many : 0;
    int lengths = place;
    place += 4 * many;
    if (keyed && (needsKeys || needsValues)) {
      place = loadLengths(bytes, place, many, stop, keyStarts, keyLengths, place + 4 * many);
    } else if (needsKeys) {
      Arrays.fill(keyLengths, count, count + many, -1);
    }
    if (needsValues) {
      place = loadLengths(bytes, lengths, many, stop, valueStarts, valueLengths, place);
      require(stop - place < 8, "values of a commit");
    }
    count += many;
    return stop + 4;
  }

  /** Fills starts and lengths. Returns the end of the last key or value. */
  private int loadLengths(ByteBuffer bytes, int at, int many, int stop, int[] starts, int[] lengths, int from)
      throws IOException {
    bytes.slice(at, 4 * many).order(ByteOrder.LITTLE_ENDIAN).asIntBuffer().get(lengths, count, many);
    long place = from;
    for (int number = count; number < count + many; number++) {
      starts[number] = (int) place;
      place += Math.max(0, lengths[number]);
    }
    require(place <= stop, "length of a key or value");
    return (int) place;
  }

  private void grow(int records) {
    if (times.length < records) {
      int size = Math.max(records, 1 << 14);
      times = new long[size];
      keyStarts = new int[size];
      keyLengths = new int[size];
      valueStarts = new int[size];
      valueLengths = new int[size];
    }
  }

  /** The numbers of the wanted records, of those in the run. */
  private int[] wanted(SealedObject.Run run) {
    int[] rows = new int[count];
    int wanted = 0;
    for (int row = 0; row < count; row++) {
      boolean held = bounds.holdSequences(run.first() + row, run.first() + row)
          && (!needsTimes || bounds.holdTimes(times[row], times[row]))
          && (!bounds.hasKeys() || bounds.holdKey(data, keyStarts[row], keyLengths[row]));
      rows[wanted] = row;
      wanted += held ? 1 : 0;
    }
    return Arrays.copyOf(rows, wanted);
  }

  private ColumnVector column(StructField field, int size, int[] rows, SealedObject.Run run) {
    return switch (field.name().toLowerCase(Locale.ROOT)) {
      case "sequence" -> new Longs(size, DataTypes.LongType, rows, number -> run.first() + number);
      case "timestamp" -> new Longs(size, DataTypes.TimestampType, rows, number -> times[number]);
      case "offset" -> new Longs(size, DataTypes.LongType, rows, number -> run.offset() + valueStarts[number]);
      case "key" -> new Bytes(size, rows, data, keyStarts, keyLengths, true);
      case "value" -> new Bytes(size, rows, data, valueStarts, valueLengths, false);
      case "index" -> constant(size, part.index());
      case "epoch" -> constant(size, part.log().epoch());
      case "generation" -> constant(size, part.log().generation());
      case "log" -> constant(size, part.log().name());
      default -> throw new IllegalArgumentException("a log has no column " + field.name());
    };
  }

  private static ColumnVector constant(int size, Object value) {
    boolean isText = value instanceof String;
    var column = new ConstantColumnVector(size, isText ? DataTypes.StringType : DataTypes.LongType);
    if (isText) {
      column.setUtf8String(UTF8String.fromString((String) value));
    } else {
      column.setLong((Long) value);
    }
    return column;
  }

  /** Numbers, by the number of the record in the run. They are made at once, as a call for each of them is slow. */
  private static final class Longs extends Column {
    private final long[] values;

    Longs(int size, DataType type, int[] rows, IntToLongFunction value) {
      super(size, type, rows);
      values = IntStream.range(0, size).mapToLong(number -> value.applyAsLong(row(number))).toArray();
    }

    @Override
    public long getLong(int number) {
      return values[number];
    }
  }

  /** Keys, or values. {@code nullable}: a length below 0 means null. */
  static final class Bytes extends Column {
    private final byte[] data;
    private final int[] starts;
    private final int[] lengths;
    private final boolean nullable;

    Bytes(int size, int[] rows, byte[] data, int[] starts, int[] lengths, boolean nullable) {
      super(size, DataTypes.BinaryType, rows);
      this.data = data;
      this.starts = starts;
      this.lengths = lengths;
      this.nullable = nullable;
    }

    /** Where the bytes are, until the next run is loaded. */
    byte[] data() {
      return data;
    }

    int start(int number) {
      return starts[row(number)];
    }

    /** Below 0 for null. */
    int length(int number) {
      return lengths[row(number)];
    }

    @Override
    public boolean hasNull() {
      return nullable;
    }

    @Override
    public boolean isNullAt(int number) {
      return nullable && length(number) < 0;
    }

    @Override
    public byte[] getBinary(int number) {
      int row = row(number);
      return lengths[row] < 0 ? null : Arrays.copyOfRange(data, starts[row], starts[row] + lengths[row]);
    }
  }

  /** A column of the wanted rows. {@code rows}: null for all. */
  private abstract static class Column extends ConstantColumnVector {
    private final int[] rows;

    Column(int size, DataType type, int[] rows) {
      super(size, type);
      this.rows = rows;
    }

    final int row(int number) {
      return rows == null ? number : rows[number];
    }
  }
}
