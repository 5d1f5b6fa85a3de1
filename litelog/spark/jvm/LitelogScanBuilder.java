package litelog.spark;

import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.OptionalLong;
import java.util.Set;
import org.apache.hadoop.conf.Configuration;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.connector.expressions.Expression;
import org.apache.spark.sql.connector.expressions.NamedReference;
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
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.util.SerializableConfiguration;

/** Takes over from a query its columns, conditions and limit, and aggregates that snapshots and headers answer. */
final class LitelogScanBuilder
    implements SupportsPushDownRequiredColumns, SupportsPushDownV2Filters, SupportsPushDownLimit,
        SupportsPushDownAggregates {
  private final ReadPlan plan;
  private final Bounds bounds = new Bounds();
  private StructType schema;
  private Predicate[] pushed = {};
  private long limit = Long.MAX_VALUE;
  private Aggregate aggregate;

  LitelogScanBuilder(ReadPlan plan, StructType schema) {
    this.plan = plan;
    this.schema = schema;
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
      (bounds.add(predicate, plan) ? taken : rest).add(predicate);
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
      aggregate = Facts.of(plan, bounds).answer(aggregation.aggregateExpressions());
      return aggregate != null;
    } catch (IOException error) {
      throw new UncheckedIOException(error);
    }
  }

  @Override
  public Scan build() {
    if (aggregate != null) {
      return aggregate;
    }
    List<ReadPlan.Share> left = new ArrayList<>();
    for (ReadPlan.Share share : plan.shares()) {
      List<ReadPlan.Part> parts =
          share.parts().stream().filter(part -> bounds.within(part.log()).mayHold(part)).toList();
      if (!parts.isEmpty()) {
        left.add(new ReadPlan.Share(new ArrayList<>(parts)));
      }
    }
    Configuration hadoop = new Configuration(SparkSession.active().sessionState().newHadoopConf());
    plan.hadoop().forEach(hadoop::set);
    var query = new LitelogReader.Factory(
        schema, bounds, limit, new SerializableConfiguration(hadoop), PythonWorker.driverPython());
    return new LitelogScan(left, query, List.of(pushed));
  }

  /** The result of an aggregate, known without reading the log. */
  private record Aggregate(StructType readSchema, Object[] values) implements LocalScan {
    @Override
    public InternalRow[] rows() {
      return new InternalRow[] {new GenericInternalRow(values)};
    }

    @Override
    public String description() {
      return "litelog: answered by snapshots and headers";
    }
  }

  /** Facts about the wanted records that are known without reading them. Null: unknown. */
  private record Facts(long count, Long first, Long last, Long lowest, Long highest, boolean exact) {
    static Facts of(ReadPlan plan, Bounds bounds) throws IOException {
      Set<List<Object>> seen = new HashSet<>();
      Facts all = new Facts(0, null, null, null, null, true);
      for (ReadPlan.Share share : plan.shares()) {
        for (ReadPlan.Part part : share.parts()) {
          if (part instanceof ReadPlan.SealedPart one) {
            if (all.exact && one.records() > 0 && seen.add(List.of(one.log(), one.index()))) {
              all = all.and(within(
                  bounds.within(one.log()), one.first(), one.next(), one.records(), one.lowest(), one.highest()));
            }
          } else if (all.exact) {
            all = all.and(ask((ReadPlan.PythonPart) part, bounds.within(part.log())));
          }
        }
      }
      return all;
    }

    private static Facts within(Bounds bounds, long first, long next, long records, long low, long high) {
      if (!bounds.overlaps(first, next - 1, low, high)) {
        return new Facts(0, null, null, null, null, true);
      }
      boolean whole = bounds.holdsSequences(first, next - 1) && bounds.holdsTimes(low, high);
      boolean known = whole || (bounds.holdsTimes(low, high) && next - first == records);
      long from = Math.max(first, bounds.first);
      long last = Math.min(next - 1, bounds.last);
      return new Facts(whole ? records : last - from + 1, from, last, whole ? low : null, whole ? high : null, known);
    }

    private static Facts ask(ReadPlan.PythonPart part, Bounds bounds) throws IOException {
      ObjectNode request = ReadPlan.request(part).put("ask", "facts");
      Facts all = new Facts(0, null, null, null, null, true);
      try (PythonWorker worker = PythonWorker.open(PythonWorker.driverPython())) {
        for (var found : ReadPlan.MAPPER.readTree(worker.answer(request))) {
          if (found.isNull()) {
            return new Facts(0, null, null, null, null, false);
          }
          all = all.and(within(bounds, found.get(0).asLong(), found.get(1).asLong(), found.get(2).asLong(),
              found.get(3).asLong(), found.get(4).asLong()));
        }
      }
      return all;
    }

    private Facts and(Facts other) {
      if (count == 0 || other.count == 0 || !exact || !other.exact) {
        boolean both = exact && other.exact;
        Facts held = count == 0 ? other : this;
        return new Facts(held.count, held.first, held.last, held.lowest, held.highest, both);
      }
      return new Facts(count + other.count, Math.min(first, other.first), Math.max(last, other.last),
          lowest == null || other.lowest == null ? null : Long.valueOf(Math.min(lowest, other.lowest)),
          highest == null || other.highest == null ? null : Long.valueOf(Math.max(highest, other.highest)), true);
    }

    Aggregate answer(AggregateFunc[] functions) {
      StructType schema = new StructType();
      Object[] values = new Object[functions.length];
      for (int number = 0; number < functions.length; number++) {
        AggregateFunc function = functions[number];
        String column = function.children().length == 1 ? named(function.children()[0]) : "";
        boolean time = column.equals("timestamp");
        boolean counts = function instanceof CountStar
            || (function instanceof Count one && !one.isDistinct() && (time || column.matches("sequence|value")));
        boolean bounded = (function instanceof Min || function instanceof Max) && (time || column.equals("sequence"));
        if (!exact || (!counts && !bounded)) {
          return null;
        }
        boolean least = function instanceof Min;
        values[number] = counts ? (Long) count : time ? (least ? lowest : highest) : least ? first : last;
        if (values[number] == null && count > 0) {
          return null;
        }
        schema = schema.add("_" + number, time && bounded ? DataTypes.TimestampType : DataTypes.LongType, !counts);
      }
      return new Aggregate(schema, values);
    }

    private static String named(Expression expression) {
      return expression instanceof NamedReference column && column.fieldNames().length == 1
          ? column.fieldNames()[0].toLowerCase(java.util.Locale.ROOT) : "";
    }
  }

  /** The scan of one query. */
  private record LitelogScan(List<ReadPlan.Share> shares, LitelogReader.Factory query, List<Predicate> pushed)
      implements Scan, Batch, SupportsReportStatistics {
    @Override
    public StructType readSchema() {
      return query.schema();
    }

    @Override
    public Batch toBatch() {
      return this;
    }

    @Override
    public Scan.ColumnarSupportMode columnarSupportMode() {
      return Scan.ColumnarSupportMode.SUPPORTED;
    }

    @Override
    public InputPartition[] planInputPartitions() {
      return shares.toArray(new InputPartition[0]);
    }

    @Override
    public PartitionReaderFactory createReaderFactory() {
      return query;
    }

    @Override
    public CustomMetric[] supportedCustomMetrics() {
      return TaskMetrics.supported();
    }

    @Override
    public String description() {
      return "litelog, pushed: " + pushed;
    }

    @Override
    public String toString() {
      return description();
    }

    @Override
    public Statistics estimateStatistics() {
      long bytes = shares.stream().flatMap(share -> share.parts().stream()).mapToLong(ReadPlan.Part::bytes).sum();
      return new Statistics() {
        @Override
        public OptionalLong sizeInBytes() {
          return OptionalLong.of(Math.max(1, bytes));
        }

        @Override
        public OptionalLong numRows() {
          return OptionalLong.empty();
        }
      };
    }
  }
}
