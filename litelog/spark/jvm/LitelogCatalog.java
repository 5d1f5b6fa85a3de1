package litelog.spark;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.util.Arrays;
import java.util.Map;
import java.util.Set;
import litelog.spark.LitelogProvider.LitelogTable;
import org.apache.spark.sql.catalyst.analysis.NoSuchNamespaceException;
import org.apache.spark.sql.catalyst.analysis.NoSuchTableException;
import org.apache.spark.sql.connector.catalog.Identifier;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.connector.catalog.TableCapability;
import org.apache.spark.sql.connector.catalog.TableCatalog;
import org.apache.spark.sql.connector.catalog.TableChange;
import org.apache.spark.sql.connector.catalog.TableWritePrivilege;
import org.apache.spark.sql.connector.expressions.Transform;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/**
 * The replicas right below a place, as tables that are read only. {@code spark.sql.catalog.NAME} names this class,
 * {@code spark.sql.catalog.NAME.path} the place, and {@code spark.sql.catalog.NAME.OPTION} the options of each read.
 */
public final class LitelogCatalog implements TableCatalog {
  private static final Set<TableCapability> READ_ONLY =
      Set.of(TableCapability.BATCH_READ, TableCapability.MICRO_BATCH_READ);

  private final LitelogProvider provider = new LitelogProvider();
  private String name;
  private CaseInsensitiveStringMap options;
  private String place;

  @Override
  public void initialize(String named, CaseInsensitiveStringMap given) {
    name = named;
    options = given;
    place = given.get("path");
    if (place == null) {
      throw new IllegalArgumentException("set spark.sql.catalog." + named + ".path to the place of the replicas");
    }
  }

  @Override
  public String name() {
    return name;
  }

  @Override
  public Identifier[] listTables(String[] namespace) throws NoSuchNamespaceException {
    if (namespace.length > 0) {
      throw new NoSuchNamespaceException(namespace);
    }
    try {
      String[] names = ReadPlan.MAPPER.readValue(LitelogProvider.ask("tables", with(place), null), String[].class);
      return Arrays.stream(names).map(found -> Identifier.of(namespace, found)).toArray(Identifier[]::new);
    } catch (IOException error) {
      throw new UncheckedIOException(error);
    }
  }

  @Override
  public Table loadTable(Identifier table) throws NoSuchTableException {
    String named = table.name();
    if (table.namespace().length > 0 || named.contains("/") || named.chars().allMatch(sign -> sign == '.')) {
      throw new NoSuchTableException(table);
    }
    String[] parts = place.split("\\?", 2);
    String url = parts[0].replaceAll("/+$", "") + "/" + named + (parts.length > 1 ? "?" + parts[1] : "");
    CaseInsensitiveStringMap read = with(url);
    var made = provider.getTable(provider.inferSchema(read), new Transform[0], read.asCaseSensitiveMap());
    return new LitelogTable(named, made.source(), made.python(), made.options(), READ_ONLY);
  }

  @Override
  public Table loadTable(Identifier table, Set<TableWritePrivilege> privileges) {
    throw readOnly();
  }

  private CaseInsensitiveStringMap with(String path) {
    return LitelogProvider.merged(options, Map.of("path", path));
  }

  @Override
  public Table alterTable(Identifier table, TableChange... changes) {
    throw readOnly();
  }

  @Override
  public boolean dropTable(Identifier table) {
    throw readOnly();
  }

  @Override
  public void renameTable(Identifier from, Identifier to) {
    throw readOnly();
  }

  private UnsupportedOperationException readOnly() {
    return new UnsupportedOperationException(
        "the tables of catalog " + name + " are read only: write with df.write.format(\"litelog\").save(URL)");
  }
}
