package litelog.spark;

import java.util.concurrent.atomic.AtomicLongArray;
import org.apache.spark.sql.connector.metric.CustomMetric;
import org.apache.spark.sql.connector.metric.CustomSumMetric;
import org.apache.spark.sql.connector.metric.CustomTaskMetric;

/** The metrics that a task reports to Spark. */
final class TaskMetrics {
  private static final String[] NAMES = {"bytes", "requests", "frames", "skipped", "python"};
  private final AtomicLongArray values = new AtomicLongArray(NAMES.length);

  void read(int bytes) {
    values.addAndGet(0, bytes);
    values.incrementAndGet(1);
  }

  void frames(boolean wanted, int count) {
    values.addAndGet(wanted ? 2 : 3, count);
  }

  void python() {
    values.incrementAndGet(4);
  }

  CustomTaskMetric[] values() {
    CustomTaskMetric[] found = new CustomTaskMetric[NAMES.length];
    for (int number = 0; number < found.length; number++) {
      found[number] = new Value(NAMES[number], values.get(number));
    }
    return found;
  }

  static CustomMetric[] supported() {
    return new CustomMetric[] {new Bytes(), new Requests(), new Frames(), new Skipped(), new Python()};
  }

  private record Value(String name, long value) implements CustomTaskMetric {}

  private abstract static class Metric extends CustomSumMetric {
    private final int number;
    private final String description;

    Metric(int number, String description) {
      this.number = number;
      this.description = description;
    }

    @Override
    public String name() {
      return NAMES[number];
    }

    @Override
    public String description() {
      return description;
    }
  }

  /** Spark creates an instance of each of these public classes from its name. */
  public static final class Bytes extends Metric {
    public Bytes() {
      super(0, "bytes read of sealed segments");
    }
  }

  public static final class Requests extends Metric {
    public Requests() {
      super(1, "requests");
    }
  }

  public static final class Frames extends Metric {
    public Frames() {
      super(2, "frames read");
    }
  }

  public static final class Skipped extends Metric {
    public Skipped() {
      super(3, "frames skipped");
    }
  }

  public static final class Python extends Metric {
    public Python() {
      super(4, "parts read by Python");
    }
  }
}
