package litelog.spark;

import java.io.IOException;
import java.io.Serializable;
import java.util.HashMap;
import java.util.Map;
import org.apache.spark.sql.connector.metric.CustomTaskMetric;
import org.apache.spark.sql.connector.read.PartitionReader;
import org.apache.spark.sql.execution.vectorized.OnHeapColumnVector;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.vectorized.ColumnVector;
import org.apache.spark.sql.vectorized.ColumnarBatch;
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

  enum Function { SUM, LEAST, MOST }

  /**
   * What Python says about the aggregates of a query, which have the columns {@code schema}. Either their {@code values}
   * are known. Or tasks read the columns {@code read}: the key, and what each of {@code functions} totals.
   */
  record Aggregates(String schema, Long[] values, String read, Function[] functions) implements Serializable {}

  private final PartitionReader<ColumnarBatch> records;
  private final Aggregates query;
  private final Map<UTF8String, long[]> held = new HashMap<>();
  private boolean isOneByOne;

  KeyTotals(PartitionReader<ColumnarBatch> records, Aggregates query) {
    this.records = records;
    this.query = query;
  }

  @Override
  public boolean next() throws IOException {
    held.clear();
    if (isOneByOne) {
      return records.next();
    }
    for (long read = 0; held.size() < MOST_KEYS && !isOneByOne && records.next(); ) {
      read += records.get().numRows();
      add(records.get());
      isOneByOne = read >= SAMPLE && held.size() > read / 8 * 7;
    }
    return !held.isEmpty();
  }

  private void add(ColumnarBatch batch) {
    ColumnVector keys = batch.column(0);
    boolean areInPlace = keys instanceof RecordColumns.OfRecords;
    for (int row = 0; row < batch.numRows(); row++) {
      UTF8String key = areInPlace ? keys.getUTF8String(row) : UTF8String.fromBytes(keys.getBinary(row));
      long[] totals = held.get(key);
      boolean isNew = totals == null;
      if (isNew) {
        totals = new long[query.functions.length];
        held.put(key == null ? null : key.clone(), totals);
      }
      for (int number = 0; number < totals.length; number++) {
        long value = batch.column(number + 1).getLong(row);
        totals[number] = isNew ? value : switch (query.functions[number]) {
          case SUM -> totals[number] + value;
          case LEAST -> Math.min(totals[number], value);
          case MOST -> Math.max(totals[number], value);
        };
      }
    }
  }

  @Override
  public ColumnarBatch get() {
    if (held.isEmpty()) {
      return records.get();
    }
    OnHeapColumnVector[] columns = OnHeapColumnVector.allocateColumns(held.size(), StructType.fromDDL(query.schema));
    held.forEach((key, totals) -> {
      if (key == null) {
        columns[0].appendNull();
      } else {
        columns[0].appendByteArray(key.getBytes(), 0, key.numBytes());
      }
      for (int number = 0; number < totals.length; number++) {
        columns[number + 1].appendLong(totals[number]);
      }
    });
    return new ColumnarBatch(columns, held.size());
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
