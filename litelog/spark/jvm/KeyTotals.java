package litelog.spark;

import java.io.IOException;
import java.io.Serializable;
import java.lang.invoke.MethodHandles;
import java.lang.invoke.VarHandle;
import java.nio.ByteOrder;
import java.util.Arrays;
import java.util.List;
import java.util.stream.Stream;
import org.apache.spark.sql.connector.expressions.aggregate.AggregateFunc;
import org.apache.spark.sql.connector.expressions.aggregate.Count;
import org.apache.spark.sql.connector.expressions.aggregate.CountStar;
import org.apache.spark.sql.connector.expressions.aggregate.Max;
import org.apache.spark.sql.connector.expressions.aggregate.Min;
import org.apache.spark.sql.connector.metric.CustomTaskMetric;
import org.apache.spark.sql.connector.read.PartitionReader;
import org.apache.spark.sql.execution.vectorized.ConstantColumnVector;
import org.apache.spark.sql.execution.vectorized.OnHeapColumnVector;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.vectorized.ColumnVector;
import org.apache.spark.sql.vectorized.ColumnarBatch;

/**
 * Totals the records of a task by key, in a hash table. Spark totals the rows of all tasks, so a key may have several
 * rows: a full table becomes rows, and is emptied. If most keys turn out to be different, a table saves nothing: from
 * then on each record becomes a row.
 */
final class KeyTotals implements PartitionReader<ColumnarBatch> {
  private static final int MOST_KEYS = 1 << 16;
  /** After this number of records, a table shows whether most keys, seven of eight, are different. */
  private static final int SAMPLE = 1 << 14;
  private static final VarHandle LONGS = MethodHandles.byteArrayViewVarHandle(long[].class, ByteOrder.LITTLE_ENDIAN);

  enum Function {
    COUNT(0), LEAST(Long.MAX_VALUE), MOST(Long.MIN_VALUE);

    /** The total of no records. */
    private final long none;

    Function(long none) {
      this.none = none;
    }
  }

  /** An aggregate. {@code column}: of which the least or the most value is wanted. */
  record Total(Function function, String column) implements Serializable {
    /** Any other aggregate. */
    static final Total UNKNOWN = new Total(null, "");

    static Total of(AggregateFunc function) {
      String column = function.children().length == 1 ? Bounds.column(function.children()[0]) : "";
      boolean isNumber = column.equals("sequence") || column.equals("timestamp");
      boolean counts = function instanceof CountStar
          || function instanceof Count one && !one.isDistinct() && (isNumber || column.equals("value"));
      return counts ? new Total(Function.COUNT, column)
          : isNumber && function instanceof Min ? new Total(Function.LEAST, column)
          : isNumber && function instanceof Max ? new Total(Function.MOST, column) : UNKNOWN;
    }

    boolean isCount() {
      return function == Function.COUNT;
    }

    boolean isTime() {
      return !isCount() && column.equals("timestamp");
    }

    DataType type() {
      return isTime() ? DataTypes.TimestampType : DataTypes.LongType;
    }
  }

  /** {@code read}: the key, and columns that the totals are about. {@code schema}: the key and its totals. */
  record Query(StructType read, StructType schema, List<Total> totals) implements Serializable {}

  /** A key, which may be null, and its totals. {@code next}: another key in the same slot. */
  private record Group(long hash, byte[] key, long[] held, Group next) {}

  private final PartitionReader<ColumnarBatch> records;
  private final Query query;
  private final Group[] slots = new Group[MOST_KEYS];
  private int count;
  private boolean isOneByOne;

  /** {@code records}: their first column is the key. */
  KeyTotals(PartitionReader<ColumnarBatch> records, Query query) {
    this.records = records;
    this.query = query;
  }

  @Override
  public boolean next() throws IOException {
    if (isOneByOne) {
      count = 0;
      return records.next();
    }
    Arrays.fill(slots, null);
    count = 0;
    for (long read = 0; count < MOST_KEYS && !isOneByOne && records.next(); ) {
      read += records.get().numRows();
      add(records.get());
      isOneByOne = read >= SAMPLE && count > read / 8 * 7;
    }
    return count > 0;
  }

  private void add(ColumnarBatch batch) {
    ColumnVector[] columns = rows(batch);
    ColumnVector keys = columns[0];
    for (int row = 0; row < batch.numRows(); row++) {
      long[] held;
      if (keys instanceof RecordColumns.Bytes inPlace) {
        held = find(inPlace.data(), inPlace.start(row), inPlace.length(row));
      } else {
        byte[] key = keys.isNullAt(row) ? null : keys.getBinary(row);
        held = find(key, 0, key == null ? -1 : key.length);
      }
      for (int number = 0; number < held.length; number++) {
        held[number] = switch (query.totals.get(number).function) {
          case COUNT -> held[number] + 1;
          case LEAST -> Math.min(held[number], columns[number + 1].getLong(row));
          case MOST -> Math.max(held[number], columns[number + 1].getLong(row));
        };
      }
    }
  }

  /** The key of each record, and its totals if there were no other records. */
  private ColumnVector[] rows(ColumnarBatch batch) {
    ConstantColumnVector one = new ConstantColumnVector(batch.numRows(), DataTypes.LongType);
    one.setLong(1);
    Stream<ColumnVector> columns = query.totals.stream()
        .map(total -> total.isCount() ? one : batch.column(query.read.fieldIndex(total.column)));
    return Stream.concat(Stream.of(batch.column(0)), columns).toArray(ColumnVector[]::new);
  }

  /** The totals of a key. {@code length}: below 0 for null. */
  private long[] find(byte[] data, int start, int length) {
    long hash = length;
    int at = 0;
    for (; at + Long.BYTES <= length; at += Long.BYTES) {
      hash = mixed(hash ^ (long) LONGS.get(data, start + at));
    }
    for (; at < length; at++) {
      hash = hash << 8 ^ data[start + at];
    }
    hash = mixed(hash);
    int slot = (int) (hash >>> 32) & MOST_KEYS - 1;
    for (Group group = slots[slot]; group != null; group = group.next) {
      if (group.hash == hash && (length < 0 ? group.key == null : group.key != null
          && Arrays.equals(group.key, 0, group.key.length, data, start, start + length))) {
        return group.held;
      }
    }
    byte[] key = length < 0 ? null : Arrays.copyOfRange(data, start, start + length);
    long[] held = query.totals.stream().mapToLong(total -> total.function.none).toArray();
    slots[slot] = new Group(hash, key, held, slots[slot]);
    count++;
    return held;
  }

  private static long mixed(long hash) {
    long product = hash * 0x9E3779B97F4A7C15L;
    return product ^ product >>> 29;
  }

  @Override
  public ColumnarBatch get() {
    if (count == 0) {
      return new ColumnarBatch(rows(records.get()), records.get().numRows());
    }
    OnHeapColumnVector[] columns = OnHeapColumnVector.allocateColumns(count, query.schema);
    for (Group slot : slots) {
      for (Group group = slot; group != null; group = group.next) {
        if (group.key == null) {
          columns[0].appendNull();
        } else {
          columns[0].appendByteArray(group.key, 0, group.key.length);
        }
        for (int number = 0; number < group.held.length; number++) {
          columns[number + 1].appendLong(group.held[number]);
        }
      }
    }
    return new ColumnarBatch(columns, count);
  }

  @Override
  public CustomTaskMetric[] currentMetricsValues() {
    return records.currentMetricsValues();
  }

  @Override
  public void close() throws IOException {
    records.close();
  }
}
