package litelog.spark;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.util.EnumSet;
import java.util.Map;
import java.util.Set;
import org.apache.spark.sql.connector.catalog.SupportsRead;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.connector.catalog.TableCapability;
import org.apache.spark.sql.connector.catalog.TableProvider;
import org.apache.spark.sql.connector.expressions.Transform;
import org.apache.spark.sql.connector.read.ScanBuilder;
import org.apache.spark.sql.sources.DataSourceRegister;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/**
 * The data source {@code litelog-jvm}. It reads the objects that a plan names. The option {@code plan} holds the plan.
 * Without that option, a Python process of the driver plans each query from the options of {@code litelog}.
 */
public final class LitelogProvider implements TableProvider, DataSourceRegister {
  @Override
  public String shortName() {
    return "litelog-jvm";
  }

  @Override
  public boolean supportsExternalMetadata() {
    return true;
  }

  @Override
  public StructType inferSchema(CaseInsensitiveStringMap options) {
    String given = options.get("plan");
    return given != null ? ReadPlan.parse(given).schema() : ReadPlan.schemaOf(ask("schema", options, null));
  }

  @Override
  public Table getTable(StructType schema, Transform[] partitioning, Map<String, String> properties) {
    return new LitelogTable(schema, new CaseInsensitiveStringMap(properties));
  }

  private static JsonNode ask(String what, Map<String, String> options, StructType schema) {
    ObjectNode request = ReadPlan.MAPPER.createObjectNode().put("ask", what);
    options.forEach(request.putObject("options")::put);
    if (schema != null) {
      request.set("schema", ReadPlan.describe(schema));
    }
    try (PythonWorker worker = PythonWorker.open(PythonWorker.driverPython())) {
      return ReadPlan.MAPPER.readTree(worker.answer(request));
    } catch (IOException error) {
      throw new UncheckedIOException(error);
    }
  }

  private record LitelogTable(StructType schema, CaseInsensitiveStringMap options) implements SupportsRead, Table {
    @Override
    public String name() {
      return "litelog";
    }

    @Override
    public Map<String, String> properties() {
      return Map.of(); // options may hold secrets
    }

    @Override
    public Set<TableCapability> capabilities() {
      return EnumSet.of(TableCapability.BATCH_READ);
    }

    @Override
    public ScanBuilder newScanBuilder(CaseInsensitiveStringMap ignored) {
      String planned = options.get("plan");
      ReadPlan plan = planned != null ? ReadPlan.parse(planned) : ReadPlan.of(ask("plan", options, schema));
      return new LitelogScanBuilder(plan, schema);
    }

    @Override
    public String toString() {
      return name();
    }
  }
}
