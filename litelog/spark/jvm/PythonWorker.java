package litelog.spark;

import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedInputStream;
import java.io.Closeable;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.File;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.util.Deque;
import java.util.concurrent.ConcurrentLinkedDeque;
import org.apache.arrow.memory.BufferAllocator;
import org.apache.arrow.vector.ipc.ArrowStreamReader;
import org.apache.spark.SparkContext;
import org.apache.spark.SparkEnv;
import org.apache.spark.SparkFiles;
import org.apache.spark.sql.util.ArrowUtils;
import org.apache.spark.sql.vectorized.ArrowColumnVector;
import org.apache.spark.sql.vectorized.ColumnVector;
import org.apache.spark.sql.vectorized.ColumnarBatch;

/**
 * A Python process ({@code litelog.spark.jvm.worker}) that plans, and reads the parts that Java does not. The JVM keeps
 * it for later requests if it answered the last one completely. It ends with the JVM, which closes its input.
 */
final class PythonWorker implements Closeable {
  private static final Deque<PythonWorker> IDLE = new ConcurrentLinkedDeque<>();
  private static final int MOST_IDLE = 2 * Runtime.getRuntime().availableProcessors();

  private final Process process;
  private final String python;
  private final DataInputStream from;
  private final DataOutputStream to;
  private ArrowStreamReader batches;
  private BufferAllocator memory;
  private boolean answered = true;

  private PythonWorker(String python) throws IOException {
    this.python = python;
    ProcessBuilder builder = new ProcessBuilder(python, "-m", "litelog.spark.jvm.worker");
    String sent = SparkFiles.getRootDirectory(); // the files that spark-submit --py-files sent
    builder.environment().merge("PYTHONPATH", sent, (old, added) -> old + File.pathSeparator + added);
    process = builder.redirectError(ProcessBuilder.Redirect.INHERIT).start();
    from = new DataInputStream(new BufferedInputStream(process.getInputStream(), 1 << 16));
    to = new DataOutputStream(process.getOutputStream());
  }

  static PythonWorker open(String python) throws IOException {
    for (PythonWorker worker = IDLE.poll(); worker != null; worker = IDLE.poll()) {
      if (worker.process.isAlive() && worker.python.equals(python)) {
        return worker;
      }
      worker.process.destroy();
    }
    return new PythonWorker(python);
  }

  /** The Python interpreter of the session's workers. */
  static String driverPython() {
    String environment = System.getenv().getOrDefault("PYSPARK_PYTHON", "python3");
    return SparkEnv.get().conf().get("spark.pyspark.python", environment);
  }

  private void send(ObjectNode request, byte... about) throws IOException {
    answered = false;
    byte[] text = ReadPlan.MAPPER.writeValueAsBytes(request.put("about_bytes", about.length));
    to.writeInt(text.length);
    to.write(text);
    to.write(about);
    to.flush();
  }

  /**
   * Returns Python's answer to a request, and to the plan or part that it is about, if there is one. Throws
   * IOException with the error that Python raises.
   */
  static byte[] ask(String python, ObjectNode request, byte... about) throws IOException {
    try (PythonWorker worker = open(python)) {
      worker.send(request, about);
      byte[] text = worker.from.readNBytes(worker.from.readInt());
      worker.end();
      return text;
    }
  }

  /** The same in the driver, which knows how many tasks the cluster runs at a time. */
  static byte[] askInDriver(String what, ObjectNode request, byte... about) throws IOException {
    int slots = SparkContext.getOrCreate().defaultParallelism();
    return ask(driverPython(), request.put("ask", what).put("slots", slots), about);
  }

  void read(ObjectNode request, byte[] about) throws IOException {
    send(request, about);
    memory = ArrowUtils.rootAllocator().newChildAllocator("litelog", 0, Long.MAX_VALUE);
    batches = new ArrowStreamReader(from, memory);
  }

  /**
   * Returns the next rows, with the columns in the order of the request; null at the end. Throws IOException
   * with the error that Python raises.
   */
  ColumnarBatch next() throws IOException {
    if (!batches.loadNextBatch()) {
      end();
      return null;
    }
    ColumnVector[] columns =
        batches.getVectorSchemaRoot().getFieldVectors().stream().map(ArrowColumnVector::new).toArray(ColumnVector[]::new);
    return new ColumnarBatch(columns, batches.getVectorSchemaRoot().getRowCount());
  }

  private void end() throws IOException {
    String error = new String(from.readNBytes(from.readInt()), StandardCharsets.UTF_8);
    answered = true;
    if (!error.isEmpty()) {
      throw new IOException(error);
    }
  }

  @Override
  public void close() throws IOException {
    if (batches != null) {
      batches.close(false);
      memory.close();
      batches = null;
    }
    if (answered && process.isAlive() && IDLE.size() < MOST_IDLE) {
      IDLE.push(this);
    } else {
      process.destroy();
    }
  }
}
