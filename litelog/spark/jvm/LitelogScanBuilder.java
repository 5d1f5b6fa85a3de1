package litelog.spark;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.OptionalLong;
import java.util.function.Supplier;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.connector.expressions.Expression;
import org.apache.spark.sql.connector.expressions.aggregate.Aggregation;
import org.apache.spark.sql.connector.expressions.filter.Predicate;
import org.apache.spark.sql.connector.metric.CustomMetric;
import org.apache.spark.sql.connector.read.Batch;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.LocalScan;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;
import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.connector.read.Statistics;
import org.apache.spark.sql.connector.read.SupportsPushDownAggregates;
import org.apache.spark.sql.connector.read.SupportsPushDownLimit;
import org.apache.spark.sql.connector.read.SupportsPushDownRequiredColumns;
import org.apache.spark.sql.connector.read.SupportsPushDownV2Filters;
import org.apache.spark.sql.connector.read.SupportsReportStatistics;
import org.apache.spark.sql.connector.read.streaming.MicroBatchStream;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructType;

/** Takes over from a query its columns, conditions and limit, and aggregates that snapshots and headers answer. */
final class LitelogScanBuilder
    implements SupportsPushDownRequiredColumns, SupportsPushDownV2Filters, SupportsPushDownLimit,
        SupportsPushDownAggregates {
  private final Supplier<ReadPlan> planner;
  private final Scan python;
  private final Supplier<MicroBatchStream> stream;
  private final String logs;
  private final Bounds bounds = new Bounds();
  private ReadPlan plan;
  private StructType schema;
  private Predicate[] pushed = {};
  private long limit = Long.MAX_VALUE;
  private Aggregate aggregate;
  private KeyTotals.Query totals;

  /**
   * {@code python}, {@code stream}: the same scan by the data source in Python, for a stream. It is never asked for a
   * batch. {@code logs}: describes the scan.
   */
  LitelogScanBuilder(
      Supplier<ReadPlan> planner, Scan python, Supplier<MicroBatchStream> stream, String logs, StructType schema) {
    this.planner = planner;
    this.python = python;
    this.stream = stream;
    this.logs = logs;
    this.schema = schema;
  }

  /** Plans at the first call. A stream needs no plan of a batch. */
  private synchronized ReadPlan plan() {
    plan = plan == null ? planner.get() : plan;
    return plan;
  }

  @Override
  public void pruneColumns(StructType required) {
    schema = required;
  }

  @Override
  public Predicate[] pushPredicates(Predicate[] predicates) {
    List<Predicate> taken = new ArrayList<>();
    List<Predicate> rest = new ArrayList<>();
    for (Predicate predicate : predicates) {
      (bounds.add(predicate, plan()) ? taken : rest).add(predicate);
    }
    pushed = taken.toArray(new Predicate[0]);
    return rest.toArray(new Predicate[0]);
  }

  @Override
  public Predicate[] pushedPredicates() {
    return pushed;
  }

  @Override
  public boolean pushLimit(int most) {
    limit = most;
    return true;
  }

  @Override
  public boolean supportCompletePushDown(Aggregation aggregation) {
    return aggregation.groupByExpressions().length == 0 && (aggregate != null || pushAggregation(aggregation));
  }

  @Override
  public boolean pushAggregation(Aggregation aggregation) {
    List<KeyTotals.Total> wanted = Arrays.stream(aggregation.aggregateExpressions()).map(KeyTotals.Total::of).toList();
    Expression[] groups = aggregation.groupByExpressions();
    if (wanted.contains(KeyTotals.Total.UNKNOWN)) {
      return false;
    }
    if (groups.length == 1 && Bounds.column(groups[0]).equals("key")) {
      totalByKey(wanted);
      return true;
    }
    if (groups.length > 0 || bounds.hasKeys()) {
      return false;
    }
    Long[] values = plan().totals(bounds, wanted);
    if (values != null) {
      StructType columns = new StructType();
      for (KeyTotals.Total total : wanted) {
        columns = columns.add("_" + columns.length(), total.type(), !total.isCount());
      }
      aggregate = new Aggregate(columns, values, logs);
    }
    return aggregate != null;
  }

  /** Has tasks read the key and what the totals are about, and return a row for each key. */
  private void totalByKey(List<KeyTotals.Total> wanted) {
    schema = new StructType().add("key", DataTypes.BinaryType);
    StructType result = schema;
    for (KeyTotals.Total total : wanted) {
      result = result.add("_" + result.length(), total.type());
      if (!total.isCount() && !List.of(schema.fieldNames()).contains(total.column())) {
        schema = schema.add(total.column(), total.type());
      }
    }
    totals = new KeyTotals.Query(schema, result, wanted);
  }

  @Override
  public Scan build() {
    return aggregate != null ? aggregate : new LitelogScan();
  }

  /** The result of an aggregate, known without reading the log. */
  private record Aggregate(StructType readSchema, Object[] values, String logs) implements LocalScan {
    @Override
    public InternalRow[] rows() {
      return new InternalRow[] {new GenericInternalRow(values)};
    }

    @Override
    public String description() {
      return logs + ": answered by snapshots and headers";
    }
  }

  /** The scan of one query. Spark asks it for a batch or for a stream, which Python reads. */
  private final class LitelogScan implements Scan, Batch, SupportsReportStatistics {
    private boolean isStream;
    private ReadPlan left;

    /** What is left to read within the bounds. */
    private synchronized ReadPlan left() {
      if (left == null) {
        left = bounds.hasRanges() ? plan().narrowed(bounds) : plan();
      }
      return left;
    }

    @Override
    public StructType readSchema() {
      return totals == null ? schema : totals.schema();
    }

    @Override
    public Batch toBatch() {
      return this;
    }

    @Override
    public MicroBatchStream toMicroBatchStream(String checkpoint) {
      isStream = true;
      return stream.get();
    }

    @Override
    public Scan.ColumnarSupportMode columnarSupportMode() {
      return isStream ? python.columnarSupportMode() : Scan.ColumnarSupportMode.SUPPORTED;
    }

    @Override
    public InputPartition[] planInputPartitions() {
      return left().shares();
    }

    @Override
    public PartitionReaderFactory createReaderFactory() {
      return new LitelogReader.Factory(schema, bounds, limit, totals, PythonWorker.driverPython());
    }

    @Override
    public CustomMetric[] supportedCustomMetrics() {
      return isStream ? python.supportedCustomMetrics() : TaskMetrics.supported();
    }

    @Override
    public String description() {
      return isStream ? logs : logs + ", pushed: " + List.of(pushed) + (totals == null ? "" : ", by key");
    }

    @Override
    public String toString() {
      return description();
    }

    @Override
    public Statistics estimateStatistics() {
      return new Size(isStream ? OptionalLong.empty() : OptionalLong.of(Math.max(1, left().bytes())), OptionalLong.empty());
    }
  }

  private record Size(OptionalLong sizeInBytes, OptionalLong numRows) implements Statistics {}
}
