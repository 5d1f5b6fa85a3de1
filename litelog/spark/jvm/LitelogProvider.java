package litelog.spark;

import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.util.Arrays;
import java.util.HashMap;
import java.util.Locale;
import java.util.Map;
import java.util.Set;
import org.apache.spark.sql.connector.catalog.SupportsRead;
import org.apache.spark.sql.connector.catalog.SupportsWrite;
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
import org.apache.spark.sql.types.StructField;
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

  /** The columns that Python decodes: those that only Kafka's schema has, and those of some formats, as in schema.py. */
  private static final Set<String> PYTHONS_OWN =
      Set.of("topic", "partition", "timestamptype", "headers", "command", "arguments", "ts", "transactions");

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
      return given != null ? ReadPlan.unpack(given).schema()
          : StructType.fromDDL(ReadPlan.MAPPER.readValue(ask("schema", options, null), String.class));
    } catch (IOException error) {
      return python.inferSchema(inPython(zoned(options))); // raises the error of Python's source
    }
  }

  @Override
  public LitelogTable getTable(StructType schema, Transform[] partitioning, Map<String, String> properties) {
    var table = (PythonTable) python.getTable(schema, partitioning, properties);
    var options = new CaseInsensitiveStringMap(properties);
    return new LitelogTable(table.name(), python, table, options, table.capabilities());
  }

  /** Whether Java reads. Python refuses unknown engines, and reads the journals of Gazette. */
  private static boolean isJava(CaseInsensitiveStringMap options) {
    return options.getOrDefault(ENGINE, "java").equals("java") && !"gazette".equals(options.get("format"));
  }

  static CaseInsensitiveStringMap inPython(CaseInsensitiveStringMap options) {
    return merged(options, Map.of(ENGINE, "python"));
  }

  /** The options with more of them, whose names are in lower case. */
  static CaseInsensitiveStringMap merged(CaseInsensitiveStringMap options, Map<String, String> more) {
    Map<String, String> all = new HashMap<>(options);
    all.putAll(more);
    return new CaseInsensitiveStringMap(all);
  }

  /** The options of a read, with the session's time zone for its times, unless they name a zone or no time. */
  private static CaseInsensitiveStringMap zoned(CaseInsensitiveStringMap options) {
    boolean isZoned = options.containsKey(ZONE) || options.keySet().stream().noneMatch(name -> name.contains("timestamp"));
    return isZoned ? options : merged(options, Map.of(ZONE, SQLConf.get().sessionLocalTimeZone()));
  }

  /** Python's answer about a read with these options. {@code schema}: null to ask for it. */
  static byte[] ask(String what, CaseInsensitiveStringMap options, StructType schema) throws IOException {
    ObjectNode request = ReadPlan.MAPPER.createObjectNode().put("schema", schema == null ? null : schema.json());
    zoned(options).forEach(request.putObject("options")::put);
    return PythonWorker.askInDriver(what, request);
  }

  /** A table with these options. A read may add options. */
  record LitelogTable(
      String name, PythonDataSourceV2 source, PythonTable python, CaseInsensitiveStringMap options,
      Set<TableCapability> capabilities) implements SupportsRead, SupportsWrite {
    @Override
    public StructType schema() {
      return python.schema();
    }

    @Override
    public Map<String, String> properties() {
      return Map.of(); // options may hold secrets
    }

    @Override
    public ScanBuilder newScanBuilder(CaseInsensitiveStringMap given) {
      CaseInsensitiveStringMap asked = zoned(merged(options, given));
      if (!isJava(asked)) {
        return python.newScanBuilder(asked);
      }
      boolean hasPythons = Arrays.stream(schema().fields()).anyMatch(this::isPythons);
      boolean isForPython = hasPythons || "kafka".equals(asked.get("recordschema"));
      return isForPython ? scanInPython(asked) : new LitelogScanBuilder(this, asked);
    }

    /** Whether only Python reads a column. Only Python raises an error for a null key. */
    private boolean isPythons(StructField column) {
      String name = column.name().toLowerCase(Locale.ROOT);
      return PYTHONS_OWN.contains(name) || name.equals("key") && !column.nullable();
    }

    ScanBuilder scanInPython(CaseInsensitiveStringMap asked) {
      return python.newScanBuilder(inPython(asked));
    }

    ReadPlan plan(CaseInsensitiveStringMap asked) {
      try {
        String planned = asked.get("plan");
        return planned != null ? ReadPlan.unpack(planned) : ReadPlan.parse(ask("plan", asked, schema()));
      } catch (IOException error) {
        scanInPython(asked).build().toBatch().planInputPartitions(); // raises the error of Python's source
        throw new UncheckedIOException(error);
      }
    }

    @Override
    public WriteBuilder newWriteBuilder(LogicalWriteInfo info) {
      return python.newWriteBuilder(info);
    }

    @Override
    public String toString() {
      return name; // options may hold secrets
    }
  }
}
