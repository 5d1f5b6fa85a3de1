package litelog.spark;

import java.util.Arrays;
import java.util.Locale;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.spark.sql.connector.metric.CustomMetric;
import org.apache.spark.sql.connector.metric.CustomTaskMetric;

/** The metrics that a task reports to Spark, which makes an instance of each public class by its name, and adds up. */
final class TaskMetrics {
  final AtomicLong bytes = new AtomicLong();
  final AtomicLong requests = new AtomicLong();
  final AtomicLong frames = new AtomicLong();
  final AtomicLong skipped = new AtomicLong();
  final AtomicLong python = new AtomicLong();

  CustomTaskMetric[] values() {
    return new CustomTaskMetric[] {new Value("bytes", bytes), new Value("requests", requests),
        new Value("frames", frames), new Value("skipped", skipped), new Value("python", python)};
  }

  static CustomMetric[] supported() {
    return new CustomMetric[] {new Bytes(), new Requests(), new Frames(), new Skipped(), new Python()};
  }

  private record Value(String name, long value) implements CustomTaskMetric {
    Value(String name, AtomicLong held) {
      this(name, held.get());
    }
  }

  public record Bytes() implements Metric {
    @Override
    public String description() {
      return "bytes read of sealed segments";
    }
  }

  public record Requests() implements Metric {
    @Override
    public String description() {
      return "requests";
    }
  }

  public record Frames() implements Metric {
    @Override
    public String description() {
      return "frames read";
    }
  }

  public record Skipped() implements Metric {
    @Override
    public String description() {
      return "frames skipped";
    }
  }

  public record Python() implements Metric {
    @Override
    public String description() {
      return "parts read by Python";
    }
  }

  /** The sum over all tasks, under the name of its class in lower case. */
  private interface Metric extends CustomMetric {
    @Override
    default String name() {
      return getClass().getSimpleName().toLowerCase(Locale.ROOT);
    }

    @Override
    default String aggregateTaskMetrics(long[] values) {
      return Long.toString(Arrays.stream(values).sum());
    }
  }
}
