package litelog.spark;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.util.List;
import java.util.OptionalLong;
import java.util.Set;
import java.util.stream.Stream;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
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
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/** Takes over from a query its columns and limit, and the conditions and aggregates that Python accepts. */
final class LitelogScanBuilder
    implements SupportsPushDownRequiredColumns, SupportsPushDownV2Filters, SupportsPushDownLimit,
        SupportsPushDownAggregates {
  private final LitelogProvider.LitelogTable table;
  private final CaseInsensitiveStringMap options;
  private final String logs;
  private ReadPlan plan;
  private StructType schema;
  private Predicate[] pushed = {};
  private long limit = Long.MAX_VALUE;
  private KeyTotals.Aggregates aggregates;

  LitelogScanBuilder(LitelogProvider.LitelogTable table, CaseInsensitiveStringMap options) {
    this.table = table;
    this.options = options;
    logs = NamedStream.logsOf(options);
    schema = table.schema();
  }

  /** Plans at the first call. A stream needs no plan of a batch. */
  private synchronized ReadPlan plan() {
    plan = plan == null ? table.plan(options) : plan;
    return plan;
  }

  @Override
  public void pruneColumns(StructType required) {
    schema = required;
  }

  @Override
  public Predicate[] pushPredicates(Predicate[] predicates) {
    try {
      plan = plan().narrowed(predicates);
    } catch (IOException error) {
      throw new UncheckedIOException(error);
    }
    Set<String> taken = plan.head().taken();
    pushed = Stream.of(predicates).filter(one -> taken.contains(one.toString())).toArray(Predicate[]::new);
    return Stream.of(predicates).filter(one -> !taken.contains(one.toString())).toArray(Predicate[]::new);
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
    return aggregation.groupByExpressions().length == 0 && pushAggregation(aggregation);
  }

  @Override
  public boolean pushAggregation(Aggregation aggregation) {
    try {
      aggregates = aggregates == null ? plan().aggregates(aggregation) : aggregates;
    } catch (IOException error) {
      throw new UncheckedIOException(error);
    }
    return aggregates != null;
  }

  @Override
  public Scan build() {
    if (aggregates == null || aggregates.values() == null) {
      return new LitelogScan();
    }
    String description = logs + ": answered by snapshots and headers";
    return new Answer(StructType.fromDDL(aggregates.schema()), aggregates.values(), description);
  }

  /** The result of a query that is known without reading the log. */
  private record Answer(StructType readSchema, Object[] values, String description) implements LocalScan {
    @Override
    public InternalRow[] rows() {
      return new InternalRow[] {new GenericInternalRow(values)};
    }
  }

  /** The scan of one query. Spark asks it for a batch or for a stream, which Python reads. */
  private final class LitelogScan implements Scan, Batch, SupportsReportStatistics {
    private boolean isStream;

    @Override
    public StructType readSchema() {
      return aggregates == null ? schema : StructType.fromDDL(aggregates.schema());
    }

    @Override
    public Batch toBatch() {
      return this;
    }

    @Override
    public MicroBatchStream toMicroBatchStream(String checkpoint) {
      isStream = true;
      return new NamedStream(table.source(), table.schema(), LitelogProvider.inPython(options), logs);
    }

    @Override
    public InputPartition[] planInputPartitions() {
      return plan().shares();
    }

    @Override
    public PartitionReaderFactory createReaderFactory() {
      StructType read = aggregates == null ? schema : StructType.fromDDL(aggregates.read());
      return new LitelogReader.Factory(read, limit, aggregates, PythonWorker.driverPython());
    }

    @Override
    public CustomMetric[] supportedCustomMetrics() {
      return isStream ? table.scanInPython(options).build().supportedCustomMetrics() : TaskMetrics.supported();
    }

    @Override
    public String description() {
      return isStream ? logs : logs + ", pushed: " + List.of(pushed) + (aggregates == null ? "" : ", by key");
    }

    @Override
    public String toString() {
      return description();
    }

    @Override
    public Statistics estimateStatistics() {
      return new Size(isStream ? OptionalLong.empty() : OptionalLong.of(Math.max(1, plan().bytes())), OptionalLong.empty());
    }
  }

  private record Size(OptionalLong sizeInBytes, OptionalLong numRows) implements Statistics {}
}
