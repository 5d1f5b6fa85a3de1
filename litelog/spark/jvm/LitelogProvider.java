package litelog.spark;

import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.util.Arrays;
import java.util.Base64;
import java.util.HashMap;
import java.util.Locale;
import java.util.Map;
import java.util.Set;
import org.apache.spark.sql.connector.catalog.SupportsRead;
import org.apache.spark.sql.connector.catalog.SupportsWrite;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.connector.catalog.TableCapability;
import org.apache.spark.sql.connector.catalog.TableProvider;
import org.apache.spark.sql.connector.expressions.Transform;
import org.apache.spark.sql.connector.read.ScanBuilder;
import org.apache.spark.sql.connector.write.LogicalWriteInfo;
import org.apache.spark.sql.connector.write.WriteBuilder;
import org.apache.spark.sql.execution.datasources.v2.python.PythonDataSourceV2;
import org.apache.spark.sql.execution.datasources.v2.python.PythonTable;
import org.apache.spark.sql.internal.SQLConf;
import org.apache.spark.sql.sources.DataSourceRegister;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/**
 * The data source {@code litelog} of a session that has the jar. It hides the data source in Python of the same name,
 * and passes streams, writes, {@code engine=python} and its own errors on to it. It reads batches from a plan: that of
 * the option {@code plan}, or one that a Python process of the driver makes for each query.
 */
public final class LitelogProvider implements TableProvider, DataSourceRegister {
  private static final String ENGINE = "engine";
  private static final String ZONE = "timezone";

  /** The columns that only Kafka's schema has: KAFKA_TYPES in schema.py. */
  private static final Set<String> KAFKAS_OWN = Set.of("topic", "partition", "timestamptype", "headers");

  private final PythonDataSourceV2 python = new PythonDataSourceV2();

  public LitelogProvider() {
    python.setShortName(shortName());
  }

  @Override
  public String shortName() {
    return "litelog";
  }

  @Override
  public boolean supportsExternalMetadata() {
    return true;
  }

  @Override
  public StructType inferSchema(CaseInsensitiveStringMap options) {
    if (!isJava(options)) {
      return python.inferSchema(zoned(options));
    }
    try {
      String given = options.get("plan");
      return given != null ? ReadPlan.parse(Base64.getDecoder().decode(given)).schema()
          : ReadPlan.schemaOf(ReadPlan.MAPPER.readTree(ask("schema", options, null)));
    } catch (IOException error) {
      return python.inferSchema(withoutEngine(zoned(options))); // raises it as Spark's users know it
    }
  }

  @Override
  public Table getTable(StructType schema, Transform[] partitioning, Map<String, String> properties) {
    var options = new CaseInsensitiveStringMap(properties);
    var table = (PythonTable) python.getTable(schema, partitioning, properties);
    return new LitelogTable(table, schema, options);
  }

  /** Whether Java reads. Python refuses unknown engines, and reads the journals of Gazette. */
  private static boolean isJava(CaseInsensitiveStringMap options) {
    return options.getOrDefault(ENGINE, "java").equals("java") && !"gazette".equals(options.get("format"));
  }

  private static CaseInsensitiveStringMap withoutEngine(CaseInsensitiveStringMap options) {
    Map<String, String> others = new HashMap<>(options.asCaseSensitiveMap());
    others.keySet().removeIf(ENGINE::equalsIgnoreCase);
    return new CaseInsensitiveStringMap(others);
  }

  /** The options of a read, with the session's time zone for its times, unless they name a zone or no time. */
  private static CaseInsensitiveStringMap zoned(Map<String, String> options) {
    var given = new CaseInsensitiveStringMap(options);
    if (given.containsKey(ZONE) || given.keySet().stream().noneMatch(name -> name.contains("timestamp"))) {
      return given;
    }
    Map<String, String> zoned = new HashMap<>(options);
    zoned.put(ZONE, SQLConf.get().sessionLocalTimeZone());
    return new CaseInsensitiveStringMap(zoned);
  }

  private static byte[] ask(String what, Map<String, String> options, StructType schema) throws IOException {
    ObjectNode request = ReadPlan.MAPPER.createObjectNode().put("ask", what);
    zoned(options).forEach(request.putObject("options")::put);
    if (schema != null) {
      request.set("schema", ReadPlan.describe(schema));
    }
    try (PythonWorker worker = PythonWorker.open(PythonWorker.driverPython())) {
      return worker.answer(request);
    }
  }

  private record LitelogTable(PythonTable python, StructType schema, CaseInsensitiveStringMap options)
      implements SupportsRead, SupportsWrite {
    @Override
    public String name() {
      return python.name();
    }

    @Override
    public Map<String, String> properties() {
      return Map.of(); // options may hold secrets
    }

    @Override
    public Set<TableCapability> capabilities() {
      return python.capabilities();
    }

    @Override
    public ScanBuilder newScanBuilder(CaseInsensitiveStringMap given) {
      if (!isJava(options)) {
        return python.newScanBuilder(zoned(given));
      }
      ScanBuilder inPython = python.newScanBuilder(withoutEngine(zoned(given)));
      // Only Python raises the error of a null in a key that the schema declares NOT NULL.
      boolean onlyPython = refusesNullKeys() || asksForKafka();
      String logs = NamedStream.logsOf(options);
      return onlyPython ? inPython : new LitelogScanBuilder(this::plan, inPython.build(), logs, schema);
    }

    /** Whether the columns are those of Kafka's schema, in which other columns have the names of a log's. */
    private boolean asksForKafka() {
      boolean named = Arrays.stream(schema.fields()).anyMatch(one -> KAFKAS_OWN.contains(one.name().toLowerCase(Locale.ROOT)));
      return named || "kafka".equals(options.get("recordSchema"));
    }

    private boolean refusesNullKeys() {
      return Arrays.stream(schema.fields()).anyMatch(one -> one.name().equalsIgnoreCase("key") && !one.nullable());
    }

    @Override
    public WriteBuilder newWriteBuilder(LogicalWriteInfo info) {
      return python.newWriteBuilder(info);
    }

    private ReadPlan plan() {
      try {
        String planned = options.get("plan");
        return ReadPlan.parse(planned != null ? Base64.getDecoder().decode(planned) : ask("plan", options, schema));
      } catch (IOException error) {
        python.newScanBuilder(withoutEngine(zoned(options))).build().toBatch().planInputPartitions(); // raises it as Spark's users know it
        throw new UncheckedIOException(error);
      }
    }

    @Override
    public String toString() {
      return name();
    }
  }
}
