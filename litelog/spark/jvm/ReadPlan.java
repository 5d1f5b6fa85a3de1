package litelog.spark;

import com.fasterxml.jackson.databind.DeserializationFeature;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.PropertyNamingStrategies;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.ByteArrayInputStream;
import java.io.IOException;
import java.io.Serializable;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.Base64;
import java.util.List;
import java.util.Set;
import java.util.stream.IntStream;
import java.util.stream.Stream;
import java.util.zip.InflaterInputStream;
import org.apache.spark.sql.connector.expressions.Expression;
import org.apache.spark.sql.connector.expressions.aggregate.Aggregation;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.types.StructType;

/**
 * A plan that Python made ({@code PackedPlan} in handover.py): it deals parts of logs to tasks. It keeps the bytes that
 * Python sent, and makes a part of them when a task gets it. PART in part_rows.py describes the rows of the parts.
 */
record ReadPlan(Head head, ByteBuffer data, int rows) {
  /** Reads and writes what Java and Python send each other. Names have underscores there. */
  static final ObjectMapper MAPPER = new ObjectMapper().setPropertyNamingStrategy(PropertyNamingStrategies.SNAKE_CASE)
      .disable(DeserializationFeature.FAIL_ON_UNKNOWN_PROPERTIES);

  private static final int ROW_BYTES = 176;

  /**
   * What is known of all of the plan. {@code logs}: their descriptions for Python workers, which Java passes on.
   * {@code taken}: the conditions of the query that all rows meet. {@code parts}: their number.
   */
  record Head(String schema, List<String> logs, Set<String> taken, int parts) {}

  /**
   * A part of one log. {@code isSealed}: Java reads runs of frames of a sealed segment. Otherwise Python reads the part.
   * {@code pieces}: what to read, for Python workers.
   */
  record Part(String log, boolean isSealed, byte[] pieces) implements Serializable {
    /** A request to a Python worker about the part. */
    ObjectNode request(String ask) {
      return MAPPER.createObjectNode().put("ask", ask).put("log", log);
    }
  }

  /** The parts that one task reads, in order. */
  record Share(List<Part> parts) implements InputPartition {}

  /** A share of a plan. The task gets the parts in it and no other part of the plan. */
  record DealtShare(ReadPlan plan, int start, int stop) implements InputPartition {
    private Object writeReplace() {
      return new Share(IntStream.range(start, stop).mapToObj(plan::part).toList());
    }
  }

  static ReadPlan parse(byte[] written) throws IOException {
    ByteBuffer data = ByteBuffer.wrap(written).order(ByteOrder.LITTLE_ENDIAN);
    int rows = 4 + data.getInt(0);
    return new ReadPlan(MAPPER.readValue(written, 4, rows - 4, Head.class), data, rows);
  }

  /** The plan in the option {@code plan}. */
  static ReadPlan unpack(String option) throws IOException {
    byte[] packed = Base64.getDecoder().decode(option);
    return parse(new InflaterInputStream(new ByteArrayInputStream(packed)).readAllBytes());
  }

  StructType schema() {
    return StructType.fromDDL(head.schema);
  }

  /** What is left of the plan under the conditions of a query that Python takes over. */
  ReadPlan narrowed(Expression[] conditions) throws IOException {
    ObjectNode request = MAPPER.createObjectNode().set("conditions", texts(conditions));
    return parse(PythonWorker.askInDriver("narrow", request, data.array()));
  }

  /** Python's part in the aggregates of a query; null if Spark has to make them of all records. */
  KeyTotals.Aggregates aggregates(Aggregation wanted) throws IOException {
    ObjectNode request = MAPPER.createObjectNode().set("groups", texts(wanted.groupByExpressions()));
    request.set("functions", texts(wanted.aggregateExpressions()));
    byte[] answer = PythonWorker.askInDriver("aggregate", request, data.array());
    return MAPPER.readValue(answer, KeyTotals.Aggregates.class);
  }

  /** Expressions as Spark writes them. */
  private static JsonNode texts(Expression[] expressions) {
    return MAPPER.valueToTree(Stream.of(expressions).map(Expression::toString).toList());
  }

  private int row(int number) {
    return Math.addExact(rows, Math.multiplyExact(number, ROW_BYTES));
  }

  private Part part(int number) {
    int row = row(number);
    int extra = Math.toIntExact(row(head.parts) + data.getLong(row + 16));
    byte[] pieces = new byte[ROW_BYTES + data.getInt(row + 12)];
    data.get(row, pieces, 0, ROW_BYTES);
    data.get(extra, pieces, ROW_BYTES, pieces.length - ROW_BYTES);
    return new Part(head.logs.get(data.getInt(row + 4)), data.getInt(row + 8) == 0, pieces);
  }

  /** How many bytes of logs the plan is about. */
  long bytes() {
    return IntStream.range(0, head.parts).mapToLong(number -> data.getLong(row(number) + 32)).sum();
  }

  /** What each task reads. */
  InputPartition[] shares() {
    int[] starts = IntStream.range(0, head.parts)
        .filter(number -> number == 0 || data.getInt(row(number)) != data.getInt(row(number - 1))).toArray();
    return IntStream.range(0, starts.length)
        .mapToObj(task -> new DealtShare(this, starts[task], task + 1 < starts.length ? starts[task + 1] : head.parts))
        .toArray(InputPartition[]::new);
  }
}
