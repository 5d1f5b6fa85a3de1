package litelog.spark;

import java.io.IOException;
import java.io.Serializable;
import java.lang.invoke.MethodHandles;
import java.lang.invoke.VarHandle;
import java.nio.ByteOrder;
import java.util.Arrays;
import java.util.List;
import org.apache.spark.sql.connector.metric.CustomTaskMetric;
import org.apache.spark.sql.connector.read.PartitionReader;
import org.apache.spark.sql.execution.vectorized.OnHeapColumnVector;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.vectorized.ColumnVector;
import org.apache.spark.sql.vectorized.ColumnarBatch;

/**
 * Adds up the records of a task by their keys. Spark adds up the rows of all tasks, so a key may have several rows: the
 * table is emptied when it is large.
 */
final class KeyTotals implements PartitionReader<ColumnarBatch> {
  private static final int MOST_KEYS = 1 << 16;
  private static final VarHandle LONGS = MethodHandles.byteArrayViewVarHandle(long[].class, ByteOrder.LITTLE_ENDIAN);

  enum Function { COUNT, LEAST, MOST }

  /** {@code column}: the number of the column of which the least or the most value is wanted. */
  record Total(Function function, int column) implements Serializable {}

  /** {@code schema}: a key and its totals. */
  record Query(StructType schema, List<Total> totals) implements Serializable {}

  /** A key, null included, and its totals. {@code next}: another key of the same slot. */
  private record Group(long hash, byte[] key, long[] held, Group next) {}

  private final PartitionReader<ColumnarBatch> records;
  private final Query query;
  private Group[] slots = new Group[1 << 10];
  private int count;

  /** {@code records}: their first column is the key. */
  KeyTotals(PartitionReader<ColumnarBatch> records, Query query) {
    this.records = records;
    this.query = query;
  }

  @Override
  public boolean next() throws IOException {
    Arrays.fill(slots, null);
    count = 0;
    while (count < MOST_KEYS && records.next()) {
      add(records.get());
    }
    return count > 0;
  }

  private void add(ColumnarBatch batch) {
    ColumnVector keys = batch.column(0);
    for (int row = 0; row < batch.numRows(); row++) {
      long[] held;
      if (keys instanceof RecordColumns.Bytes inPlace) {
        held = find(inPlace.data(), inPlace.start(row), inPlace.length(row));
      } else {
        byte[] key = keys.isNullAt(row) ? null : keys.getBinary(row);
        held = find(key, 0, key == null ? -1 : key.length);
      }
      for (int number = 0; number < held.length; number++) {
        Total total = query.totals.get(number);
        held[number] = switch (total.function) {
          case COUNT -> held[number] + 1;
          case LEAST -> Math.min(held[number], batch.column(total.column).getLong(row));
          case MOST -> Math.max(held[number], batch.column(total.column).getLong(row));
        };
      }
    }
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
    for (Group group = slots[slot(hash)]; group != null; group = group.next) {
      if (group.hash == hash && (length < 0 ? group.key == null : group.key != null
          && Arrays.equals(group.key, 0, group.key.length, data, start, start + length))) {
        return group.held;
      }
    }
    byte[] key = length < 0 ? null : Arrays.copyOfRange(data, start, start + length);
    long[] held = query.totals.stream().mapToLong(KeyTotals::begin).toArray();
    if (++count > slots.length) {
      Group[] old = slots;
      slots = new Group[4 * old.length];
      for (Group slot : old) {
        for (Group group = slot; group != null; group = group.next) {
          put(group.hash, group.key, group.held);
        }
      }
    }
    put(hash, key, held);
    return held;
  }

  private void put(long hash, byte[] key, long[] held) {
    slots[slot(hash)] = new Group(hash, key, held, slots[slot(hash)]);
  }

  private int slot(long hash) {
    return (int) (hash >>> 32) & slots.length - 1;
  }

  private static long mixed(long hash) {
    long product = hash * 0x9E3779B97F4A7C15L;
    return product ^ product >>> 29;
  }

  private static long begin(Total total) {
    return switch (total.function) {
      case COUNT -> 0;
      case LEAST -> Long.MAX_VALUE;
      case MOST -> Long.MIN_VALUE;
    };
  }

  @Override
  public ColumnarBatch get() {
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
