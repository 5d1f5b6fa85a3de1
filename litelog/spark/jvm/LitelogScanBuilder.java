package litelog.spark;

import java.io.IOException;
import java.io.UncheckedIOException;
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
    try {
      aggregate = new Answer().to(wanted);
      return aggregate != null;
    } catch (IOException error) {
      throw new UncheckedIOException(error);
    }
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

  /** What is known of the wanted records without reading them. */
  private final class Answer {
    private long count;
    private long first = Long.MAX_VALUE;
    private long last = Long.MIN_VALUE;
    private long lowest = Long.MAX_VALUE;
    private long highest = Long.MIN_VALUE;
    private boolean isCounted = true;
    private boolean isTimed = true;

    /** The answer to all functions; null if the facts do not give it. */
    Aggregate to(List<KeyTotals.Total> wanted) throws IOException {
      gather();
      StructType columns = new StructType();
      List<Object> values = new ArrayList<>();
      for (KeyTotals.Total total : wanted) {
        if (!isCounted || (total.isTime() && !isTimed)) {
          return null;
        }
        columns = columns.add("_" + values.size(), total.type(), !total.isCount());
        Long bound = count == 0 ? null : (Long) switch (total.function()) {
          case LEAST -> total.isTime() ? lowest : first;
          default -> total.isTime() ? highest : last;
        };
        values.add(total.isCount() ? (Long) count : bound);
      }
      return new Aggregate(columns, values.toArray(), logs);
    }

    private void gather() throws IOException {
      ReadPlan.Part before = null;
      for (var parts = plan().parts().iterator(); parts.hasNext(); ) {
        ReadPlan.Part part = parts.next();
        if (!part.isSealed()) {
          ask(part);
        } else if (before == null || part.log() != before.log() || part.index() != before.index()) {
          add(bounds.within(part.log()), part.facts());
        } // otherwise several tasks read the sealed segment
        before = part.isSealed() ? part : null;
      }
    }

    /** Adds what Python finds in headers. */
    private void ask(ReadPlan.Part part) throws IOException {
      if (!isCounted) {
        return;
      }
      try (PythonWorker worker = PythonWorker.open(PythonWorker.driverPython())) {
        byte[] found = worker.answer(part.request("facts", bounds));
        for (ReadPlan.Facts facts : ReadPlan.MAPPER.readValue(found, ReadPlan.Facts[].class)) {
          isCounted &= facts != null;
          if (isCounted) {
            add(bounds.within(part.log()), facts);
          }
        }
      }
    }

    private void add(Bounds wanted, ReadPlan.Facts facts) {
      if (!wanted.overlap(facts)) {
        return;
      }
      boolean timed = wanted.holdTimes(facts.lowest(), facts.highest());
      boolean whole = timed && wanted.holdSequences(facts.first(), facts.last());
      isCounted &= whole || (timed && facts.last() - facts.first() + 1 == facts.records());
      isTimed &= whole;
      long least = Math.max(facts.first(), wanted.first);
      long most = Math.min(facts.last(), wanted.last);
      count += whole ? facts.records() : most - least + 1;
      first = Math.min(first, least);
      last = Math.max(last, most);
      lowest = Math.min(lowest, facts.lowest());
      highest = Math.max(highest, facts.highest());
    }
  }

  /** The scan of one query. Spark asks it for a batch or for a stream, which Python reads. */
  private final class LitelogScan implements Scan, Batch, SupportsReportStatistics {
    private boolean isStream;
    private List<ReadPlan.Share> left;

    /** What is left to read after pruning. */
    private synchronized List<ReadPlan.Share> shares() {
      if (left == null) {
        left = plan().deal(part -> bounds.within(part.log()).overlap(part.facts()), LitelogProvider.slots());
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
      return shares().toArray(new InputPartition[0]);
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
      return new Size(isStream ? OptionalLong.empty() : OptionalLong.of(Math.max(1, shares().stream()
          .flatMap(share -> share.parts().stream()).mapToLong(ReadPlan.Part::bytes).sum())), OptionalLong.empty());
    }
  }

  private record Size(OptionalLong sizeInBytes, OptionalLong numRows) implements Statistics {}
}
