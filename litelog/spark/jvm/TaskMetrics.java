package litelog.spark;

import java.util.concurrent.atomic.AtomicLong;
import org.apache.spark.sql.connector.metric.CustomMetric;
import org.apache.spark.sql.connector.metric.CustomSumMetric;
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

  public static final class Bytes extends Metric {
    public Bytes() {
      super("bytes", "bytes read of sealed segments");
    }
  }

  public static final class Requests extends Metric {
    public Requests() {
      super("requests", "requests");
    }
  }

  public static final class Frames extends Metric {
    public Frames() {
      super("frames", "frames read");
    }
  }

  public static final class Skipped extends Metric {
    public Skipped() {
      super("skipped", "frames skipped");
    }
  }

  public static final class Python extends Metric {
    public Python() {
      super("python", "parts read by Python");
    }
  }

  private abstract static class Metric extends CustomSumMetric {
    private final String name;
    private final String description;

    Metric(String name, String description) {
      this.name = name;
      this.description = description;
    }

    @Override
    public String name() {
      return name;
    }

    @Override
    public String description() {
      return description;
    }
  }
}
