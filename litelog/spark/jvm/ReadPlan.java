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
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.AbstractList;
import java.util.ArrayList;
import java.util.Base64;
import java.util.List;
import java.util.function.Predicate;
import java.util.stream.IntStream;
import java.util.stream.Stream;
import java.util.zip.InflaterInputStream;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;

/**
 * A plan that Python made ({@code PackedPlan} in handover.py): it deals parts of logs to tasks. It keeps the bytes that
 * Python sent, and makes a part of them when someone takes it. {@code rows}: PART in part_rows.py describes them.
 */
record ReadPlan(Head head, ByteBuffer rows, ByteBuffer extras) {
  /** Reads and writes what Java and Python send each other. Names have underscores there. */
  static final ObjectMapper MAPPER = new ObjectMapper().setPropertyNamingStrategy(PropertyNamingStrategies.SNAKE_CASE)
      .disable(DeserializationFeature.FAIL_ON_UNKNOWN_PROPERTIES);

  private static final int ROW_BYTES = 176;
  private static final long MIN_TASK_BYTES = 32 << 20;

  /** What is known of all of the plan. {@code parts}: their number. */
  record Head(JsonNode schema, Log[] logs, boolean byTime, boolean bySequence, int parts) {}

  /** A log. {@code pickled}: its description for Python workers, which Java passes on. */
  record Log(String pickled, String name, String generation, long epoch, Bounds bounds) implements Serializable {}

  /** What is known of some records without reading them. {@code last}: inclusive. */
  record Facts(long first, long last, long records, long lowest, long highest) implements Serializable {}

  /**
   * A part of one log. {@code isSealed}: Java reads runs of frames of a sealed segment. Otherwise Python reads the part,
   * which has no more than the records of {@code facts}. {@code row}, {@code extra}: what to read, for Python workers.
   */
  record Part(Log log, boolean isSealed, long index, long bytes, Facts facts, byte[] row, byte[] extra)
      implements Serializable {
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
    return new ReadPlan(head, data.slice(start, stop - start).order(ByteOrder.LITTLE_ENDIAN),
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

  Stream<Part> parts() {
    return IntStream.range(0, head.parts).mapToObj(this::part);
  }

  private Part part(int number) {
    ByteBuffer row = rows.slice(number * ROW_BYTES, ROW_BYTES).order(ByteOrder.LITTLE_ENDIAN);
    byte[] copy = new byte[ROW_BYTES];
    byte[] extra = new byte[row.getInt(12)];
    row.get(0, copy);
    extras.get(Math.toIntExact(row.getLong(16)), extra);
    Facts facts = new Facts(row.getLong(40), row.getLong(48), row.getLong(56), row.getLong(64), row.getLong(72));
    return new Part(head.logs[row.getInt(4)], row.getInt(8) == 0, row.getLong(24), bytes(number), facts, copy, extra);
  }

  private long task(int number) {
    return rows.getInt(number * ROW_BYTES);
  }

  private long bytes(int number) {
    return rows.getLong(number * ROW_BYTES + 32);
  }

  /**
   * Deals what is left of the plan to tasks: as it was planned, or, if conditions removed some parts, evenly to as few
   * tasks as keep all {@code slots} busy, none of which gets more than the largest one of the plan.
   */
  List<Share> deal(Predicate<Part> isLeft, int slots) {
    int[] left = IntStream.range(0, head.parts).filter(number -> isLeft.test(part(number))).toArray();
    boolean isWhole = left.length == head.parts;
    long total = Math.max(1, IntStream.of(left).mapToLong(this::bytes).sum());
    long most = 0;
    long held = 0;
    for (int number = 0; number < head.parts; number++) {
      held = (number > 0 && task(number) == task(number - 1) ? held : 0) + bytes(number);
      most = Math.max(most, held);
    }
    long tasks = Math.max((total + most) / (most + 1), Math.min(slots, total / MIN_TASK_BYTES));
    List<Share> dealt = new ArrayList<>();
    int start = 0;
    long last = 0;
    long at = 0;
    for (int end = 0; end < left.length; end++) {
      long size = bytes(left[end]);
      long task = isWhole ? task(left[end]) : (at + size / 2) * tasks / total;
      if (end > start && task != last) {
        dealt.add(share(left, start, end));
        start = end;
      }
      last = task;
      at += size;
    }
    if (start < left.length) {
      dealt.add(share(left, start, left.length));
    }
    return dealt;
  }

  private Share share(int[] numbers, int start, int stop) {
    return new Share(new AbstractList<>() {
      @Override
      public Part get(int number) {
        return part(numbers[start + number]);
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
