package litelog.spark;

import static litelog.spark.SealedObject.require;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.Arrays;
import java.util.Locale;
import org.apache.spark.sql.execution.vectorized.ConstantColumnVector;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.vectorized.ColumnVector;
import org.apache.spark.sql.vectorized.ColumnarBatch;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.unsafe.types.UTF8String;

/** The records of a run of frames, as columns over its bytes. Only the columns that the query needs are filled. */
final class RecordColumns {
  private static final int SEGMENT_HEADER_BYTES = 64;
  private static final long SEGMENT_MAGIC = 0x0a676f6c6574696cL;
  private static final int BEFORE_BODY = 22;
  private static final int FIXED_BYTES = 40;

  private final StructType schema;
  private final Bounds bounds;
  private final boolean needsSequences;
  private final boolean needsTimes;
  private final boolean needsKeys;
  private final boolean needsValues;
  byte[] data = new byte[1 << 21];
  private long base;
  private int count;
  private long[] sequences = new long[0];
  private long[] times = new long[0];
  private int[] keyStarts = new int[0];
  private int[] keyLengths = new int[0];
  private int[] valueStarts = new int[0];
  private int[] valueLengths = new int[0];

  RecordColumns(StructType schema, Bounds bounds) {
    this.schema = schema;
    this.bounds = bounds;
    boolean cutsTimes = bounds.since != Long.MIN_VALUE || bounds.until != Long.MAX_VALUE;
    needsSequences = has("sequence") || bounds.first != Long.MIN_VALUE || bounds.last != Long.MAX_VALUE;
    needsTimes = has("timestamp") || cutsTimes;
    needsKeys = has("key") || bounds.hasKeys();
    needsValues = has("value") || has("offset");
  }

  private boolean has(String name) {
    return Arrays.stream(schema.fieldNames()).anyMatch(name::equalsIgnoreCase);
  }

  /** Fills the columns from a decoded run. Throws IOException if anything contradicts the footer. */
  void load(SealedObject object, SealedObject.Run run) throws IOException {
    count = 0;
    base = object.offset(run);
    grow(Math.toIntExact(object.records(run)));
    int end = (int) (object.end(run) - base);
    ByteBuffer bytes = ByteBuffer.wrap(data, 0, end).order(ByteOrder.LITTLE_ENDIAN);
    int at = 0;
    if (base == 0) {
      require(end >= SEGMENT_HEADER_BYTES && bytes.getLong(0) == SEGMENT_MAGIC, "header of the log segment");
      at = SEGMENT_HEADER_BYTES;
    }
    long next = object.first(run);
    while (at < end) {
      at = loadCommit(bytes, at, end, next, object.records(run));
      next = object.first(run) + count;
    }
    require(count == object.records(run) && next == object.next(run), "number of records");
    if (!object.isWithin(run, bounds)) {
      cut();
    }
  }

  private int loadCommit(ByteBuffer bytes, int at, int end, long next, long records) throws IOException {
    require(at + 48 <= end, "commit");
    int many = bytes.getShort(at + 16) & 0xFFFF;
    int stop = Math.addExact(at, Math.addExact(bytes.getInt(at + 18), BEFORE_BODY));
    int flags = bytes.get(at + 23);
    require(bytes.getLong(at) == next && many > 0 && count + many <= records, "sequence of a commit");
    require(stop > at + FIXED_BYTES && stop + 4 <= end && bytes.get(at + 22) == 1 && (flags & ~3) == 0, "commit");
    boolean stamped = (flags & 2) != 0;
    boolean keyed = (flags & 1) != 0;
    int place = at + FIXED_BYTES;
    require((long) many * (4 + (keyed ? 4 : 0) + (stamped ? 8 : 0)) <= stop - place, "columns of a commit");
    if (needsSequences) {
      for (int number = 0; number < many; number++) {
        sequences[count + number] = next + number;
      }
    }
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
      require(place <= stop, "length of a key or value");
    }
    return (int) place;
  }

  private void grow(int records) {
    if (times.length < records || sequences.length < records) {
      int size = Math.max(records, 1 << 14);
      sequences = needsSequences ? new long[size] : sequences;
      times = new long[size];
      keyStarts = new int[size];
      keyLengths = new int[size];
      valueStarts = new int[size];
      valueLengths = new int[size];
    }
  }

  /** Removes the records outside the bounds. */
  private void cut() {
    int left = 0;
    for (int number = 0; number < count; number++) {
      boolean wanted = (!needsSequences || bounds.holdsSequences(sequences[number], sequences[number]))
          && (!needsTimes || bounds.holdsTimes(times[number], times[number]))
          && (!bounds.hasKeys() || bounds.holdsKey(data, keyStarts[number], keyLengths[number]));
      if (!wanted) {
        continue;
      }
      if (needsSequences) {
        sequences[left] = sequences[number];
      }
      times[left] = times[number];
      keyStarts[left] = keyStarts[number];
      keyLengths[left] = keyLengths[number];
      valueStarts[left] = valueStarts[number];
      valueLengths[left] = valueLengths[number];
      left++;
    }
    count = left;
  }

  /** A batch of the columns. It shows the records of the last {@code load}. */
  ColumnarBatch batch(ReadPlan.SealedPart part) {
    ColumnVector[] columns = new ColumnVector[schema.length()];
    for (int number = 0; number < columns.length; number++) {
      columns[number] = column(schema.fields()[number], part);
    }
    return new ColumnarBatch(columns, count);
  }

  private ColumnVector column(StructField field, ReadPlan.SealedPart part) {
    return switch (field.name().toLowerCase(Locale.ROOT)) {
      case "sequence" -> numbers(DataTypes.LongType, sequences);
      case "timestamp" -> numbers(DataTypes.TimestampType, times);
      case "key" -> bytes(keyStarts, keyLengths, true);
      case "value" -> bytes(valueStarts, valueLengths, false);
      case "offset" -> numbers(DataTypes.LongType, Arrays.stream(valueStarts, 0, count).mapToLong(at -> base + at).toArray());
      case "index" -> constant(part.index());
      case "epoch" -> constant(part.log().epoch());
      case "generation" -> constant(part.log().generation());
      case "log" -> constant(part.log().name());
      default -> throw new IllegalArgumentException("a log has no column " + field.name());
    };
  }

  private ColumnVector constant(Object value) {
    boolean isText = value instanceof String;
    var column = new ConstantColumnVector(count, isText ? DataTypes.StringType : DataTypes.LongType);
    if (isText) {
      column.setUtf8String(UTF8String.fromString((String) value));
    } else {
      column.setLong((Long) value);
    }
    return column;
  }

  private ColumnVector numbers(DataType type, long[] values) {
    return new ConstantColumnVector(count, type) {
      @Override
      public long getLong(int row) {
        return values[row];
      }
    };
  }

  private ColumnVector bytes(int[] starts, int[] lengths, boolean nullable) {
    return new ConstantColumnVector(count, DataTypes.BinaryType) {
      @Override
      public boolean hasNull() {
        return nullable;
      }

      @Override
      public boolean isNullAt(int row) {
        return nullable && lengths[row] < 0;
      }

      @Override
      public byte[] getBinary(int row) {
        return isNullAt(row) ? null : Arrays.copyOfRange(data, starts[row], starts[row] + lengths[row]);
      }
    };
  }
}
