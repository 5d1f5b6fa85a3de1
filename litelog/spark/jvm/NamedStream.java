package litelog.spark;

import org.apache.spark.sql.execution.datasources.v2.python.PythonDataSourceV2;
import org.apache.spark.sql.execution.datasources.v2.python.PythonMicroBatchStream;
import org.apache.spark.sql.execution.datasources.v2.python.PythonMicroBatchStreamWithTriggerAvailableNow;
import org.apache.spark.sql.execution.python.streaming.PythonStreamingSourceRunner;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/** The stream of the data source in Python. Spark describes a source by its {@code toString}: it names the logs here. */
final class NamedStream extends PythonMicroBatchStreamWithTriggerAvailableNow {
  private final String logs;

  NamedStream(PythonDataSourceV2 python, StructType schema, CaseInsensitiveStringMap options, String logs) {
    super(python, "litelog", schema, options, begin(python, schema, options));
    this.logs = logs;
  }

  private static PythonStreamingSourceRunner begin(
      PythonDataSourceV2 python, StructType schema, CaseInsensitiveStringMap options) {
    var runner = PythonMicroBatchStream.createPythonStreamingSourceRunner(python, "litelog", schema, options);
    runner.init();
    return runner;
  }

  /** The logs in the options, as the user wrote them, without secrets. */
  static String logsOf(CaseInsensitiveStringMap options) {
    String given = options.getOrDefault("paths", options.getOrDefault("path", ""));
    String users = "://([^/\"]*:[^\"]*|[^/\"]*)@"; // a password may hold a slash
    String queries = "(://[^\"?#]*)[?#][^\"]*";
    return "litelog " + given.replaceAll(users, "://").replaceAll(queries, "$1");
  }

  @Override
  public String toString() {
    return logs;
  }
}
