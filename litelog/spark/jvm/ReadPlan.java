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
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.function.Predicate;
import java.util.zip.InflaterInputStream;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;

/** A plan that Python made ({@code litelog/spark/jvm/handover.py}): it deals parts of logs to tasks. */
record ReadPlan(StructType schema, List<Share> shares, boolean byTime, boolean bySequence) {
  /** Reads and writes what Java and Python send each other. Names have underscores there. */
  static final ObjectMapper MAPPER = new ObjectMapper().setPropertyNamingStrategy(PropertyNamingStrategies.SNAKE_CASE)
      .disable(DeserializationFeature.FAIL_ON_UNKNOWN_PROPERTIES);

  private static final long MIN_TASK_BYTES = 32 << 20;

  /** A log. {@code pickled}: its description for Python workers, which Java passes on. */
  record Log(String pickled, String name, String generation, long epoch, Bounds bounds) implements Serializable {}

  /** The parts that one task reads, in order. */
  record Share(List<Part> parts) implements InputPartition {}

  /** What is known of some records without reading them. {@code last}: inclusive. */
  record Facts(long first, long last, long records, long lowest, long highest) implements Serializable {}

  /**
   * A part of one log. {@code pieces}: what to read, for Python workers. {@code key}: the sealed segment of which Java
   * reads runs of frames; null if Python reads the part, which then has no more than the records of {@code facts}.
   */
  record Part(Log log, String pieces, String key, long index, long bytes, Facts facts) implements Serializable {
    boolean isSealed() {
      return key != null;
    }

    /** A request to a Python worker about the part. */
    ObjectNode request(String ask, Bounds bounds) {
      ObjectNode request = MAPPER.createObjectNode().put("ask", ask).put("log", log.pickled).put("pieces", pieces);
      return request.set("bounds", MAPPER.valueToTree(bounds));
    }
  }

  /**
   * Deals what is left of the plan to tasks: as it was planned, or, if conditions removed some parts, evenly to as few
   * tasks as keep all {@code slots} busy, none of which gets more than the largest one of the plan.
   */
  List<Share> deal(Predicate<Part> isLeft, int slots) {
    List<Part> parts = shares.stream().flatMap(share -> share.parts.stream()).filter(isLeft).toList();
    if (parts.size() == shares.stream().mapToInt(share -> share.parts.size()).sum()) {
      return shares;
    }
    long total = Math.max(1, parts.stream().mapToLong(Part::bytes).sum());
    long most = shares.stream().mapToLong(share -> share.parts.stream().mapToLong(Part::bytes).sum()).max().orElse(0);
    long tasks = Math.max((total + most) / (most + 1), Math.min(slots, total / MIN_TASK_BYTES));
    Map<Long, Share> dealt = new TreeMap<>();
    long at = 0;
    for (Part part : parts) {
      long task = (at + part.bytes / 2) * tasks / total;
      dealt.computeIfAbsent(task, number -> new Share(new ArrayList<>())).parts.add(part);
      at += part.bytes;
    }
    return List.copyOf(dealt.values());
  }

  /** Parses the compressed lines of a plan: one about all of it, and one for each task. */
  static ReadPlan parse(byte[] packed) throws IOException {
    var lines = MAPPER.readerFor(JsonNode.class)
        .<JsonNode>readValues(new InflaterInputStream(new ByteArrayInputStream(packed)));
    JsonNode plan = lines.nextValue();
    Log[] logs = MAPPER.treeToValue(plan.get("logs"), Log[].class);
    List<Share> shares = new ArrayList<>();
    while (lines.hasNextValue()) {
      List<Part> parts = new ArrayList<>();
      for (JsonNode part : lines.nextValue()) {
        parts.add(new Part(logs[part.get("log").asInt()], part.get("pieces").asText(), part.get("key").textValue(),
            part.get("index").asLong(), part.get("bytes").asLong(),
            MAPPER.treeToValue(part.get("facts"), Facts.class)));
      }
      shares.add(new Share(parts));
    }
    return new ReadPlan(
        schemaOf(plan.get("schema")), shares, plan.get("by_time").asBoolean(), plan.get("by_sequence").asBoolean());
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
