package litelog.spark;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.OptionalLong;
import java.util.Set;
import java.util.function.Supplier;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.connector.expressions.aggregate.AggregateFunc;
import org.apache.spark.sql.connector.expressions.aggregate.Aggregation;
import org.apache.spark.sql.connector.expressions.aggregate.Count;
import org.apache.spark.sql.connector.expressions.aggregate.CountStar;
import org.apache.spark.sql.connector.expressions.aggregate.Max;
import org.apache.spark.sql.connector.expressions.aggregate.Min;
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
  private final String logs;
  private final Bounds bounds = new Bounds();
  private ReadPlan plan;
  private StructType schema;
  private Predicate[] pushed = {};
  private long limit = Long.MAX_VALUE;
  private Aggregate aggregate;

  /**
   * {@code python}: the same scan by the data source in Python, for a stream. It is never asked for a batch. {@code
   * logs}: describes the scan.
   */
  LitelogScanBuilder(Supplier<ReadPlan> planner, Scan python, String logs, StructType schema) {
    this.planner = planner;
    this.python = python;
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
  public boolean isPartiallyPushed() {
    return true;
  }

  @Override
  public boolean supportCompletePushDown(Aggregation aggregation) {
    return aggregate != null || pushAggregation(aggregation);
  }

  @Override
  public boolean pushAggregation(Aggregation aggregation) {
    if (aggregation.groupByExpressions().length > 0 || bounds.hasKeys()) {
      return false;
    }
    try {
      aggregate = new Facts().answer(aggregation.aggregateExpressions());
      return aggregate != null;
    } catch (IOException error) {
      throw new UncheckedIOException(error);
    }
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

  /** Facts about the wanted records that are known without reading them. */
  private final class Facts {
    private long count;
    private long first = Long.MAX_VALUE;
    private long last = Long.MIN_VALUE;
    private long lowest = Long.MAX_VALUE;
    private long highest = Long.MIN_VALUE;
    private boolean areCounted = true;
    private boolean areTimed = true;

    /** The answer to all functions; null if facts do not give it. */
    Aggregate answer(AggregateFunc[] functions) throws IOException {
      StructType columns = new StructType();
      Object[] values = new Object[functions.length];
      for (AggregateFunc function : functions) {
        if (!isStated(function)) {
          return null;
        }
      }
      gather();
      for (int number = 0; number < functions.length; number++) {
        AggregateFunc function = functions[number];
        boolean least = function instanceof Min;
        boolean bound = least || function instanceof Max;
        boolean time = bound && column(function).equals("timestamp");
        if (!areCounted || (time && !areTimed)) {
          return null;
        }
        Long value = time ? (least ? lowest : highest) : least ? first : last;
        values[number] = !bound ? (Object) count : count == 0 ? null : value;
        columns = columns.add("_" + number, time ? DataTypes.TimestampType : DataTypes.LongType, bound);
      }
      return new Aggregate(columns, values, logs);
    }

    private static boolean isStated(AggregateFunc function) {
      boolean bound = function instanceof Min || function instanceof Max;
      boolean counts = function instanceof Count one && !one.isDistinct();
      return function instanceof CountStar || (bound && column(function).matches("sequence|timestamp"))
          || (counts && column(function).matches("sequence|timestamp|value"));
    }

    private static String column(AggregateFunc function) {
      return function.children().length == 1 ? Bounds.column(function.children()[0]) : "";
    }

    private void gather() throws IOException {
      Set<List<Object>> seen = new HashSet<>();
      for (ReadPlan.Share share : plan().shares()) {
        for (ReadPlan.Part part : share.parts()) {
          Bounds wanted = bounds.within(part.log());
          if (part instanceof ReadPlan.SealedPart one) {
            if (one.records() > 0 && seen.add(List.of(one.log(), one.index()))) {
              add(wanted, one.first(), one.next(), one.records(), one.lowest(), one.highest());
            }
          } else if (areCounted) {
            ask((ReadPlan.PythonPart) part, wanted);
          }
        }
      }
    }

    private void ask(ReadPlan.PythonPart part, Bounds wanted) throws IOException {
      ObjectNode request = ReadPlan.request(part).put("ask", "facts");
      try (PythonWorker worker = PythonWorker.open(PythonWorker.driverPython())) {
        for (JsonNode one : ReadPlan.MAPPER.readTree(worker.answer(request))) {
          areCounted &= !one.isNull();
          if (areCounted) {
            add(wanted, one.get(0).asLong(), one.get(1).asLong(), one.get(2).asLong(), one.get(3).asLong(),
                one.get(4).asLong());
          }
        }
      }
    }

    private void add(Bounds wanted, long from, long next, long records, long low, long high) {
      if (!wanted.overlaps(from, next - 1, low, high)) {
        return;
      }
      boolean timed = wanted.holdsTimes(low, high);
      boolean whole = timed && wanted.holdsSequences(from, next - 1);
      areCounted &= whole || (timed && next - from == records);
      areTimed &= whole;
      long least = Math.max(from, wanted.first);
      long most = Math.min(next - 1, wanted.last);
      count += whole ? records : most - least + 1;
      first = Math.min(first, least);
      last = Math.max(last, most);
      lowest = Math.min(lowest, low);
      highest = Math.max(highest, high);
    }
  }

  /** The scan of one query. Spark asks it for a batch or for a stream, which Python reads. */
  private final class LitelogScan implements Scan, Batch, SupportsReportStatistics {
    private boolean isStream;
    private List<ReadPlan.Share> left;

    /** What is left to read after pruning. */
    private synchronized List<ReadPlan.Share> shares() {
      if (left == null) {
        left = new ArrayList<>();
        for (ReadPlan.Share share : plan().shares()) {
          var parts = share.parts().stream().filter(part -> bounds.within(part.log()).mayHold(part)).toList();
          if (!parts.isEmpty()) {
            left.add(new ReadPlan.Share(new ArrayList<>(parts)));
          }
        }
      }
      return left;
    }

    @Override
    public StructType readSchema() {
      return schema;
    }

    @Override
    public Batch toBatch() {
      return this;
    }

    @Override
    public MicroBatchStream toMicroBatchStream(String checkpoint) {
      isStream = true;
      return NamedStream.of(python.toMicroBatchStream(checkpoint), logs);
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
      return new LitelogReader.Factory(schema, bounds, limit, PythonWorker.driverPython());
    }

    @Override
    public CustomMetric[] supportedCustomMetrics() {
      return isStream ? python.supportedCustomMetrics() : TaskMetrics.supported();
    }

    @Override
    public String description() {
      return isStream ? logs : logs + ", pushed: " + List.of(pushed);
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
