package litelog.spark;

import com.fasterxml.jackson.databind.DeserializationFeature;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.PropertyNamingStrategies;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.ByteArrayInputStream;
import java.io.IOException;
import java.io.Serializable;
import java.io.UncheckedIOException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.AbstractList;
import java.util.ArrayList;
import java.util.Base64;
import java.util.List;
import java.util.stream.IntStream;
import java.util.zip.InflaterInputStream;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;

/**
 * A plan that Python made ({@code PackedPlan} in handover.py): it deals parts of logs to tasks. It keeps the bytes that
 * Python sent, and makes a part of them when someone takes it. {@code rows}: PART in part_rows.py describes them.
 */
record ReadPlan(Head head, byte[] written, ByteBuffer rows, ByteBuffer extras) {
  /** Reads and writes what Java and Python send each other. Names have underscores there. */
  static final ObjectMapper MAPPER = new ObjectMapper().setPropertyNamingStrategy(PropertyNamingStrategies.SNAKE_CASE)
      .disable(DeserializationFeature.FAIL_ON_UNKNOWN_PROPERTIES);

  private static final int ROW_BYTES = 176;

  /** What is known of all of the plan. {@code parts}: their number. */
  record Head(JsonNode schema, Log[] logs, boolean byTime, boolean bySequence, int parts) {}

  /** A log. {@code pickled}: its description for Python workers, which Java passes on. */
  record Log(String pickled, String name, String generation, long epoch, Bounds bounds) implements Serializable {}

  /**
   * A part of one log. {@code isSealed}: Java reads runs of frames of a sealed segment. Otherwise Python reads the part.
   * {@code row}, {@code extra}: what to read, for Python workers.
   */
  record Part(Log log, boolean isSealed, long index, byte[] row, byte[] extra) implements Serializable {
    /** A request to a Python worker about the part. */
    ObjectNode request(String ask, Bounds bounds) {
      ObjectNode request = MAPPER.createObjectNode().put("ask", ask).put("log", log.pickled);
      return request.put("row", row).put("extra", extra).set("bounds", MAPPER.valueToTree(bounds));
    }
  }

  /** The parts that one task reads, in order. The task gets these and no other part of the plan. */
  record Share(List<Part> parts) implements InputPartition {
    private Object writeReplace() {
      return new Share(List.copyOf(parts));
    }
  }

  static ReadPlan parse(byte[] written) throws IOException {
    ByteBuffer data = ByteBuffer.wrap(written).order(ByteOrder.LITTLE_ENDIAN);
    int start = 4 + data.getInt(0);
    Head head = MAPPER.readValue(written, 4, start - 4, Head.class);
    int stop = Math.addExact(start, Math.multiplyExact(head.parts, ROW_BYTES));
    return new ReadPlan(head, written, data.slice(start, stop - start).order(ByteOrder.LITTLE_ENDIAN),
        data.slice(stop, written.length - stop));
  }

  /** The plan in the option {@code plan}. */
  static ReadPlan unpack(String option) throws IOException {
    byte[] packed = Base64.getDecoder().decode(option);
    return parse(new InflaterInputStream(new ByteArrayInputStream(packed)).readAllBytes());
  }

  StructType schema() {
    return schemaOf(head.schema);
  }

  /** What is left of the plan within the bounds of a query. */
  ReadPlan narrowed(Bounds bounds) {
    return ask("narrow", bounds, List.of(), ReadPlan::parse);
  }

  /**
   * The aggregates of all records within the bounds, null for those of no records. Returns null if the records have to
   * be read.
   */
  Long[] totals(Bounds bounds, List<KeyTotals.Total> wanted) {
    return ask("totals", bounds, wanted, found -> MAPPER.readValue(found, Long[].class));
  }

  /** Reads Python's answer. */
  private interface Reading<T> {
    T read(byte[] answer) throws IOException;
  }

  private <T> T ask(String what, Bounds bounds, List<KeyTotals.Total> totals, Reading<T> reading) {
    ObjectNode request = MAPPER.createObjectNode().put("ask", what).put("slots", LitelogProvider.slots());
    request.put("plan_bytes", written.length).set("totals", MAPPER.valueToTree(totals));
    request.set("bounds", MAPPER.valueToTree(bounds));
    try {
      return reading.read(PythonWorker.ask(PythonWorker.driverPython(), request, written));
    } catch (IOException error) {
      throw new UncheckedIOException(error);
    }
  }

  private Part part(int number) {
    ByteBuffer row = rows.slice(number * ROW_BYTES, ROW_BYTES).order(ByteOrder.LITTLE_ENDIAN);
    byte[] copy = new byte[ROW_BYTES];
    byte[] extra = new byte[row.getInt(12)];
    row.get(0, copy);
    extras.get(Math.toIntExact(row.getLong(16)), extra);
    return new Part(head.logs[row.getInt(4)], row.getInt(8) == 0, row.getLong(24), copy, extra);
  }

  private long task(int number) {
    return rows.getInt(number * ROW_BYTES);
  }

  /** How many bytes of logs the plan is about. */
  long bytes() {
    return IntStream.range(0, head.parts).mapToLong(number -> rows.getLong(number * ROW_BYTES + 32)).sum();
  }

  /** What each task reads. */
  Share[] shares() {
    List<Share> dealt = new ArrayList<>();
    int start = 0;
    for (int end = 1; end <= head.parts; end++) {
      if (end == head.parts || task(end) != task(start)) {
        dealt.add(share(start, end));
        start = end;
      }
    }
    return dealt.toArray(new Share[0]);
  }

  private Share share(int start, int stop) {
    return new Share(new AbstractList<>() {
      @Override
      public Part get(int number) {
        return part(start + number);
      }

      @Override
      public int size() {
        return stop - start;
      }
    });
  }

  static StructType schemaOf(JsonNode columns) {
    StructType schema = new StructType();
    for (JsonNode column : columns) {
      DataType type = DataType.fromDDL(column.get(1).asText());
      schema = schema.add(column.get(0).asText(), type, column.get(2).asBoolean());
    }
    return schema;
  }

  static ArrayNode describe(StructType schema) {
    ArrayNode columns = MAPPER.createArrayNode();
    for (StructField field : schema.fields()) {
      columns.addArray().add(field.name()).add(field.dataType().simpleString()).add(field.nullable());
    }
    return columns;
  }
}
