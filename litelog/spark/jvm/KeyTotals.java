package litelog.spark;

import java.io.IOException;
import java.io.Serializable;
import java.util.Arrays;
import java.util.Objects;
import org.apache.spark.sql.connector.metric.CustomTaskMetric;
import org.apache.spark.sql.connector.read.PartitionReader;
import org.apache.spark.sql.execution.vectorized.OnHeapColumnVector;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.vectorized.ColumnVector;
import org.apache.spark.sql.vectorized.ColumnarBatch;
import org.apache.spark.unsafe.Platform;
import org.apache.spark.unsafe.types.UTF8String;

/**
 * Totals the records of a task by key, in a hash table. Spark totals the rows of all tasks, so a key may have several
 * rows: a full table becomes rows, and is emptied. If most keys turn out to be different, a table saves nothing: from
 * then on each record becomes a row.
 */
final class KeyTotals implements PartitionReader<ColumnarBatch> {
  private static final int MOST_KEYS = 1 << 16;
  /** After this number of records, a table shows whether most keys, seven of eight, are different. */
  private static final int SAMPLE = 1 << 14;

  enum Function {
    SUM(0), LEAST(Long.MAX_VALUE), MOST(Long.MIN_VALUE);

    /** The total of no values. */
    final long none;

    Function(long none) {
      this.none = none;
    }
  }

  /**
   * What Python says about the aggregates of a query, which have the columns {@code schema}. Either their {@code values}
   * are known. Or tasks read the columns {@code read}: the key, and what each of {@code functions} totals.
   */
  record Aggregates(String schema, Long[] values, String read, Function[] functions) implements Serializable {}

  /** A key, which may be null, and its totals. {@code next}: another key in the same slot. */
  private record Group(long hash, UTF8String key, long[] totals, Group next) {}

  private final PartitionReader<ColumnarBatch> records;
  private final Aggregates query;
  private final Group[] slots = new Group[MOST_KEYS];
  private int count;
  private boolean isOneByOne;

  KeyTotals(PartitionReader<ColumnarBatch> records, Aggregates query) {
    this.records = records;
    this.query = query;
  }

  @Override
  public boolean next() throws IOException {
    count = 0;
    if (isOneByOne) {
      return records.next();
    }
    Arrays.fill(slots, null);
    for (long read = 0; count < MOST_KEYS && !isOneByOne && records.next(); ) {
      read += records.get().numRows();
      add(records.get());
      isOneByOne = read >= SAMPLE && count > read / 8 * 7;
    }
    return count > 0;
  }

  private void add(ColumnarBatch batch) {
    ColumnVector keys = batch.column(0);
    boolean areInPlace = keys instanceof RecordColumns.OfRecords;
    for (int row = 0; row < batch.numRows(); row++) {
      long[] totals = find(areInPlace ? keys.getUTF8String(row) : UTF8String.fromBytes(keys.getBinary(row)));
      for (int number = 0; number < totals.length; number++) {
        long value = batch.column(number + 1).getLong(row);
        totals[number] = switch (query.functions[number]) {
          case SUM -> totals[number] + value;
          case LEAST -> Math.min(totals[number], value);
          case MOST -> Math.max(totals[number], value);
        };
      }
    }
  }

  /** The totals of a key. With a {@code HashMap} a task took nearly three times as long. */
  private long[] find(UTF8String key) {
    long hash = key == null ? -1 : key.numBytes();
    if (key != null) {
      Object bytes = key.getBaseObject();
      long at = key.getBaseOffset();
      long end = at + key.numBytes();
      for (; at + Long.BYTES <= end; at += Long.BYTES) {
        hash = mixed(hash ^ Platform.getLong(bytes, at));
      }
      for (; at < end; at++) {
        hash = hash << 8 ^ Platform.getByte(bytes, at);
      }
    }
    hash = mixed(hash);
    int slot = (int) (hash >>> 32) & MOST_KEYS - 1;
    for (Group group = slots[slot]; group != null; group = group.next) {
      if (group.hash == hash && Objects.equals(group.key, key)) {
        return group.totals;
      }
    }
    long[] totals = Arrays.stream(query.functions).mapToLong(function -> function.none).toArray();
    slots[slot] = new Group(hash, key == null ? null : key.clone(), totals, slots[slot]);
    count++;
    return totals;
  }

  private static long mixed(long hash) {
    long product = hash * 0x9E3779B97F4A7C15L;
    return product ^ product >>> 29;
  }

  @Override
  public ColumnarBatch get() {
    if (count == 0) {
      return records.get();
    }
    OnHeapColumnVector[] columns = OnHeapColumnVector.allocateColumns(count, StructType.fromDDL(query.schema));
    for (Group slot : slots) {
      for (Group group = slot; group != null; group = group.next) {
        if (group.key == null) {
          columns[0].appendNull();
        } else {
          columns[0].appendByteArray(group.key.getBytes(), 0, group.key.numBytes());
        }
        for (int number = 0; number < group.totals.length; number++) {
          columns[number + 1].appendLong(group.totals[number]);
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
