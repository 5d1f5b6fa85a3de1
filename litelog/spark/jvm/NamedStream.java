package litelog.spark;

import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;
import org.apache.spark.sql.connector.read.streaming.MicroBatchStream;
import org.apache.spark.sql.connector.read.streaming.Offset;
import org.apache.spark.sql.connector.read.streaming.ReadLimit;
import org.apache.spark.sql.connector.read.streaming.SupportsTriggerAvailableNow;
import org.apache.spark.sql.execution.datasources.v2.python.PythonMicroBatchStreamWithTriggerAvailableNow;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/**
 * The stream of the data source in Python. Spark describes a source by its {@code toString}, which names the logs here.
 * Each method is written out, as a dynamic proxy would hide the messages of Spark's checked exceptions.
 */
final class NamedStream implements MicroBatchStream, SupportsTriggerAvailableNow {
  private final PythonMicroBatchStreamWithTriggerAvailableNow stream;
  private final String logs;

  private NamedStream(PythonMicroBatchStreamWithTriggerAvailableNow stream, String logs) {
    this.stream = stream;
    this.logs = logs;
  }

  static MicroBatchStream of(MicroBatchStream stream, String logs) {
    return stream instanceof PythonMicroBatchStreamWithTriggerAvailableNow known ? new NamedStream(known, logs) : stream;
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

  @Override
  public Offset initialOffset() {
    return stream.initialOffset();
  }

  @Override
  public Offset deserializeOffset(String written) {
    return stream.deserializeOffset(written);
  }

  @Override
  public ReadLimit getDefaultReadLimit() {
    return stream.getDefaultReadLimit();
  }

  @Override
  public void prepareForTriggerAvailableNow() {
    stream.prepareForTriggerAvailableNow();
  }

  @Override
  public Offset latestOffset() {
    return stream.latestOffset();
  }

  @Override
  public Offset latestOffset(Offset start, ReadLimit limit) {
    return stream.latestOffset(start, limit);
  }

  @Override
  public Offset reportLatestOffset() {
    return stream.reportLatestOffset();
  }

  @Override
  public InputPartition[] planInputPartitions(Offset start, Offset end) {
    return stream.planInputPartitions(start, end);
  }

  @Override
  public PartitionReaderFactory createReaderFactory() {
    return stream.createReaderFactory();
  }

  @Override
  public void commit(Offset end) {
    stream.commit(end);
  }

  @Override
  public void stop() {
    stream.stop();
  }
}
