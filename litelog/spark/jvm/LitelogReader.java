package litelog.spark;

import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.IOException;
import java.io.InterruptedIOException;
import java.net.URI;
import java.nio.ByteBuffer;
import java.util.ArrayDeque;
import java.util.Collections;
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

  /** The settings that all tasks of a query share. {@code totals}: null for records. */
  record Factory(StructType schema, long limit, KeyTotals.Aggregates totals, String python)
      implements PartitionReaderFactory {
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
      LitelogReader records = new LitelogReader(this, ((ReadPlan.Share) partition).parts());
      return totals == null ? records : new KeyTotals(records, totals);
    }
  }

  private final Factory query;
  private final Iterator<ReadPlan.Part> parts;
  private final RecordColumns columns;
  private final TaskMetrics metrics = new TaskMetrics();
  private final ExecutorService threads = Executors.newCachedThreadPool(work -> {
    Thread thread = new Thread(work, "litelog-read");
    thread.setDaemon(true);
    return thread;
  });
  private long left;
  private ReadPlan.Part part;
  private ReadPlan.Part nextPart;
  private Future<SealedObject> nextObject;
  private SealedObject object;
  private Iterator<SealedObject.Group> groups = Collections.emptyIterator();
  private final Deque<Future<SealedObject.Group>> ahead = new ArrayDeque<>();
  private int window = 1;
  private SealedObject.Group group;
  private Iterator<SealedObject.Run> runs = Collections.emptyIterator();
  private PythonWorker worker;
  private ColumnarBatch batch;

  LitelogReader(Factory query, List<ReadPlan.Part> parts) {
    this.query = query;
    this.parts = parts.iterator();
    columns = new RecordColumns(query.schema);
    left = query.limit;
    look();
  }

  /** Begins to open the part after the current one. */
  private void look() {
    nextPart = parts.hasNext() ? parts.next() : null;
    if (nextPart != null && nextPart.isSealed()) {
      ReadPlan.Part opening = nextPart;
      nextObject = threads.submit(() -> open(opening));
    }
  }

  /** Opens a sealed segment, and reads its first group, unless the query may end before it. */
  private SealedObject open(ReadPlan.Part opening) throws IOException {
    SealedObject found = SealedObject.open(opening, query.python);
    if (query.limit == Long.MAX_VALUE && !found.groups().isEmpty()) {
      found.groups().set(0, fetch(found.url(), found.groups().get(0)));
    }
    return found;
  }

  @Override
  public boolean next() throws IOException {
    if (left <= 0) {
      return false;
    }
    batch = null;
    while (batch == null || batch.numRows() == 0) {
      if (worker != null) {
        readRows();
      } else if (runs.hasNext()) {
        readRun(runs.next());
      } else if (groups.hasNext() || !ahead.isEmpty()) {
        readGroup();
      } else if (nextPart != null) {
        begin();
      } else {
        return false;
      }
    }
    left -= batch.numRows();
    return true;
  }

  private void readRows() throws IOException {
    batch = worker.next();
    if (batch == null) {
      worker.close();
      worker = null;
    }
  }

  private void begin() throws IOException {
    part = nextPart;
    if (!part.isSealed()) {
      ask(part.request("read"));
    } else {
      try {
        object = result(nextObject);
        object.metrics().forEach(metrics::add);
        groups = object.groups().iterator();
        columns.begin(object);
      } catch (IOException error) {
        leave(part.request("read"), "a sealed segment", error);
      }
    }
    look();
  }

  private void readGroup() throws IOException {
    while (ahead.size() < window && groups.hasNext()) {
      SealedObject.Group next = groups.next();
      URI url = object.url();
      ahead.add(threads.submit(() -> fetch(url, next)));
    }
    window = Math.min(2 * window, MOST_AHEAD);
    release();
    group = result(ahead.remove());
    runs = group.runs().iterator();
  }

  private void release() {
    if (group != null && group.body() != null) {
      ObjectBytes.release(group.body());
    }
    group = null; // a buffer that is released twice would be used by two tasks
  }

  /** The group with its bytes; without them if the request failed, so that Python reads each of its runs. */
  private SealedObject.Group fetch(URI url, SealedObject.Group asked) {
    if (asked.body() != null) {
      return asked;
    }
    try {
      ByteBuffer body = ObjectBytes.read(url, asked.at(), asked.size());
      metrics.add("bytes", asked.size());
      metrics.add("requests", 1);
      return new SealedObject.Group(asked.at(), asked.size(), body, asked.runs());
    } catch (IOException error) {
      LOG.debug("a request failed", error);
      return asked;
    }
  }

  /** Reads a run into {@code batch}, or has Python read it. */
  private void readRun(SealedObject.Run run) throws IOException {
    try {
      SealedObject.require(group.body() != null, "answer to a request");
      batch = columns.load(group.body(), run);
    } catch (IOException | RuntimeException error) {
      long stop = run.offset() + run.length();
      String what = "bytes " + run.offset() + " to " + stop + " of " + object.constants();
      leave(part.request("read").put("start", run.offset()).put("stop", stop), what, error);
    }
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

  private void leave(ObjectNode request, String what, Exception error) throws IOException {
    if (error instanceof InterruptedIOException interrupted) {
      throw interrupted;
    }
    LOG.warn("Python reads {}: {}", what, error.toString());
    ask(request);
  }

  private void ask(ObjectNode request) throws IOException {
    metrics.add("python", 1);
    StructType wanted = query.schema.isEmpty() ? new StructType().add("sequence", "bigint", true) : query.schema;
    worker = PythonWorker.open(query.python);
    worker.read(request.put("schema", wanted.json()), part.pieces());
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
    release();
    if (worker != null) {
      worker.close();
    }
  }
}
