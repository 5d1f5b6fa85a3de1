package litelog.spark;

import java.util.Locale;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.spark.sql.connector.metric.CustomMetric;
import org.apache.spark.sql.connector.metric.CustomSumMetric;
import org.apache.spark.sql.connector.metric.CustomTaskMetric;

/** The numbers that a task reports. Spark makes an instance of each public class by its name, and adds up. */
final class TaskMetrics {
  private static final Map<String, String> DESCRIPTIONS = Map.of("bytes", "bytes read of sealed segments",
      "requests", "requests", "frames", "frames read", "skipped", "frames skipped", "python", "parts read by Python");

  private final Map<String, Long> values = new ConcurrentHashMap<>();

  static CustomMetric[] supported() {
    return new CustomMetric[] {new Bytes(), new Requests(), new Frames(), new Skipped(), new Python()};
  }

  void add(String name, long value) {
    values.merge(name, value, Long::sum);
  }

  CustomTaskMetric[] values() {
    return DESCRIPTIONS.keySet().stream().map(name -> new Value(name, values.getOrDefault(name, 0L)))
        .toArray(CustomTaskMetric[]::new);
  }

  private record Value(String name, long value) implements CustomTaskMetric {}

  /** The sum over all tasks, under the name of its class in lower case. */
  private abstract static class Sum extends CustomSumMetric {
    @Override
    public String name() {
      return getClass().getSimpleName().toLowerCase(Locale.ROOT);
    }

    @Override
    public String description() {
      return DESCRIPTIONS.get(name());
    }
  }

  public static final class Bytes extends Sum {}

  public static final class Requests extends Sum {}

  public static final class Frames extends Sum {}

  public static final class Skipped extends Sum {}

  public static final class Python extends Sum {}
}
