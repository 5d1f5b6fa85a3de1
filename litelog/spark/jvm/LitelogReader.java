package litelog.spark;

import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.IOException;
import java.io.InterruptedIOException;
import java.io.Serializable;
import java.util.ArrayDeque;
import java.util.Deque;
import java.util.Iterator;
import java.util.List;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.connector.metric.CustomTaskMetric;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.PartitionReader;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.vectorized.ColumnarBatch;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Reads a task's parts in order, one run of frames at a time. If a run or a sealed segment fails a check, Python reads
 * it again, and heals it or raises the error.
 */
final class LitelogReader implements PartitionReader<ColumnarBatch> {
  private static final Logger LOG = LoggerFactory.getLogger(LitelogReader.class);
  private static final int MOST_AHEAD = 4;

  /** The settings that all tasks of a query share. */
  record Factory(StructType schema, Bounds bounds, long limit, String python)
      implements PartitionReaderFactory, Serializable {
    @Override
    public PartitionReader<InternalRow> createReader(InputPartition partition) {
      throw new UnsupportedOperationException();
    }

    @Override
    public boolean supportColumnarReads(InputPartition partition) {
      return true;
    }

    @Override
    public PartitionReader<ColumnarBatch> createColumnarReader(InputPartition partition) {
      return new LitelogReader(this, ((ReadPlan.Share) partition).parts());
    }
  }

  /** A group of runs that was requested ahead. */
  private record Fetched(SealedObject.Group group, Future<byte[]> body) {}

  private final Factory query;
  private final Iterator<ReadPlan.Part> parts;
  private final TaskMetrics metrics = new TaskMetrics();
  private final ExecutorService threads = Executors.newCachedThreadPool(work -> {
    Thread thread = new Thread(work, "litelog-read");
    thread.setDaemon(true);
    return thread;
  });
  private final Deque<Fetched> ahead = new ArrayDeque<>();
  private int window = 1;
  private long left;
  private ReadPlan.Part nextPart;
  private Future<SealedObject> nextObject;
  private SealedObject object;
  private Iterator<SealedObject.Group> groups;
  private SealedObject.Group group;
  private byte[] body;
  private Iterator<SealedObject.Run> runs;
  private RecordColumns columns;
  private PythonWorker worker;
  private ColumnarBatch batch;

  LitelogReader(Factory query, List<ReadPlan.Part> parts) {
    this.query = query;
    this.parts = parts.iterator();
    left = query.limit;
    look();
  }

  /** Begins to open the part after the current one. */
  private void look() {
    nextPart = parts.hasNext() ? parts.next() : null;
    nextObject = nextPart instanceof ReadPlan.SealedPart sealed
        ? threads.submit(() -> SealedObject.open(sealed, query.python, metrics)) : null;
  }

  @Override
  public boolean next() throws IOException {
    while (left > 0) {
      if (worker != null) {
        batch = worker.next();
        if (batch == null) {
          stopWorker();
          continue;
        }
      } else if (!nextRun()) {
        if (nextPart == null) {
          return false;
        }
        begin();
        continue;
      }
      if (batch != null && batch.numRows() > 0) {
        left -= batch.numRows();
        return true;
      }
    }
    return false;
  }

  private void begin() throws IOException {
    closeObject();
    ReadPlan.Part part = nextPart;
    Future<SealedObject> opening = nextObject;
    if (part instanceof ReadPlan.SealedPart sealed) {
      Bounds bounds = query.bounds.within(sealed.log());
      try {
        object = result(opening);
        nextObject = null;
        groups = object.groups(bounds).iterator();
        columns = new RecordColumns(query.schema, bounds);
      } catch (IOException | RuntimeException error) {
        nextObject = null;
        closeObject();
        leave(sealed, sealed.start(), sealed.stop(), error);
      }
    } else {
      ask(ReadPlan.request((ReadPlan.PythonPart) part));
    }
    look();
  }

  /** Reads the next run of the open object into {@code batch}, or has Python read it. False: there is no run left. */
  private boolean nextRun() throws IOException {
    batch = null;
    if (object == null || ((runs == null || !runs.hasNext()) && !nextGroup())) {
      return false;
    }
    SealedObject.Run run = runs.next();
    try {
      if (body == null) {
        throw new IOException("no bytes");
      }
      columns.data = object.decode(group, body, run, columns.data);
      columns.load(object, run);
      batch = columns.batch(object.part);
    } catch (IOException | RuntimeException error) {
      leave(object.part, object.offset(run), object.end(run), error);
    }
    return true;
  }

  private boolean nextGroup() throws IOException {
    while (ahead.size() < window && groups.hasNext()) {
      SealedObject.Group wanted = groups.next();
      SealedObject from = object;
      ahead.add(new Fetched(wanted, threads.submit(() -> from.read(wanted))));
    }
    window = Math.min(2 * window, MOST_AHEAD);
    Fetched fetched = ahead.poll();
    if (fetched == null) {
      return false;
    }
    group = fetched.group;
    runs = group.runs().iterator();
    try {
      body = result(fetched.body);
    } catch (InterruptedIOException error) {
      throw error;
    } catch (IOException error) {
      body = null; // Python reads each of its runs
    }
    return true;
  }

  private static <T> T result(Future<T> future) throws IOException {
    try {
      return future.get();
    } catch (InterruptedException error) {
      Thread.currentThread().interrupt();
      throw new InterruptedIOException("the task was ended");
    } catch (ExecutionException error) {
      throw error.getCause() instanceof IOException cause ? cause : new IOException(error.getCause());
    }
  }

  private void leave(ReadPlan.SealedPart part, long start, long stop, Exception error) throws IOException {
    if (error instanceof InterruptedIOException interrupted) {
      throw interrupted;
    }
    LOG.warn("{}: {}: Python reads bytes {} to {}: {}", part.log().name(), part.key(), start, stop, error.toString());
    ask(ReadPlan.request(part, start, stop));
  }

  private void ask(ObjectNode request) throws IOException {
    metrics.python.incrementAndGet();
    query.bounds.describe(request);
    StructType wanted = query.schema.isEmpty() ? new StructType().add("sequence", "bigint", true) : query.schema;
    for (StructField field : wanted.fields()) {
      request.withArray("columns").addArray().add(field.name()).add(field.nullable());
    }
    worker = PythonWorker.open(query.python);
    worker.read(request);
  }

  private void stopWorker() throws IOException {
    worker.close();
    worker = null;
  }

  private void closeObject() throws IOException {
    if (object != null) {
      object.close();
      object = null;
    }
    runs = null;
  }

  @Override
  public ColumnarBatch get() {
    return batch;
  }

  @Override
  public CustomTaskMetric[] currentMetricsValues() {
    return metrics.values();
  }

  @Override
  public void close() throws IOException {
    threads.shutdownNow();
    if (worker != null) {
      stopWorker();
    }
    closeObject();
    if (nextObject != null) {
      try {
        nextObject.get().close();
      } catch (ExecutionException | InterruptedException error) {
        LOG.debug("a sealed segment was not opened to the end", error);
      }
    }
  }
}
