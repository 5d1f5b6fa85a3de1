package litelog.spark;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.ByteArrayInputStream;
import java.io.IOException;
import java.io.Serializable;
import java.util.ArrayList;
import java.util.List;
import java.util.zip.InflaterInputStream;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;

/** A plan that Python made ({@code litelog/spark/jvm/handover.py}): it deals parts of logs to tasks. */
record ReadPlan(StructType schema, List<Share> shares, boolean byTime, boolean bySequence) {
  static final ObjectMapper MAPPER = new ObjectMapper();

  /**
   * A log. {@code pickled}: its description for Python workers, which Java passes on. {@code folder}: null if Python
   * signs URLs of its objects. The bounds are inclusive.
   */
  record Log(
      String pickled, String name, String folder, String generation, long epoch, long first, long last, long since,
      long until) implements Serializable {}

  /** The parts that one task reads, in order. */
  record Share(List<Part> parts) implements InputPartition {}

  /** A part of one log. */
  sealed interface Part extends Serializable {
    Log log();

    long bytes();
  }

  /** Pickled pieces that only Python reads. {@code from}: they hold no record with a lower sequence. */
  record PythonPart(Log log, String pieces, long bytes, long from) implements Part {}

  /**
   * The runs of frames that start in bytes [start, stop) of a log segment. {@code entry}: everything that the snapshot
   * states about its sealed segment, as JSON. {@code first}, {@code next}: -1 if there are no records.
   */
  record SealedPart(
      Log log, String entry, String key, long index, long size, long length, long first, long next, long records,
      long lowest, long highest, long start, long stop) implements Part {
    @Override
    public long bytes() {
      return stop - start;
    }

    JsonNode facts() throws IOException {
      return MAPPER.readTree(entry);
    }
  }

  /** Parses the compressed lines of a plan: one about all of it, and one for each task. */
  static ReadPlan parse(byte[] packed) throws IOException {
    var lines = MAPPER.readerFor(JsonNode.class)
        .<JsonNode>readValues(new InflaterInputStream(new ByteArrayInputStream(packed)));
    JsonNode plan = lines.nextValue();
    List<Log> logs = new ArrayList<>();
    for (JsonNode log : plan.get("logs")) {
      JsonNode range = log.get("range");
      logs.add(new Log(log.get("pickled").asText(), log.get("name").asText(), text(log.get("folder")),
          text(log.get("generation")), log.get("epoch").asLong(), range.get(0).asLong(), range.get(1).asLong(),
          range.get(2).asLong(), range.get(3).asLong()));
    }
    List<Share> shares = new ArrayList<>();
    while (lines.hasNextValue()) {
      List<Part> parts = new ArrayList<>();
      lines.nextValue().forEach(part -> parts.add(part(logs.get(part.get("log").asInt()), part)));
      shares.add(new Share(parts));
    }
    return new ReadPlan(
        schemaOf(plan.get("schema")), shares, plan.get("by_time").asBoolean(), plan.get("by_sequence").asBoolean());
  }

  private static Part part(Log log, JsonNode part) {
    if (part.has("pieces")) {
      return new PythonPart(log, part.get("pieces").asText(), part.get("bytes").asLong(), part.get("from").asLong());
    }
    JsonNode entry = part.get("entry");
    return new SealedPart(log, entry.toString(), part.get("key").asText(), entry.get("index").asLong(),
        entry.get("size").asLong(), entry.get("length").asLong(), entry.get("first").asLong(-1),
        entry.get("next").asLong(-1), entry.get("records").asLong(), entry.get("lowest").asLong(),
        entry.get("highest").asLong(), entry.get("start").asLong(), entry.get("stop").asLong());
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

  private static String text(JsonNode node) {
    return node.isNull() ? null : node.asText();
  }

  /** The request for a Python worker to read bytes [start, stop) of a sealed log segment. */
  static ObjectNode request(SealedPart part, long start, long stop) throws IOException {
    ObjectNode entry = (ObjectNode) part.facts();
    ObjectNode request = MAPPER.createObjectNode().put("ask", "read").put("log", part.log().pickled());
    request.set("entry", entry.put("start", start).put("stop", stop));
    return request;
  }

  static ObjectNode request(PythonPart part) {
    return MAPPER.createObjectNode().put("ask", "read").put("log", part.log().pickled()).put("pieces", part.pieces());
  }
}
