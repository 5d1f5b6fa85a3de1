package litelog.spark;

import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.IOException;
import java.io.InterruptedIOException;
import java.io.Serializable;
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
  record Factory(StructType schema, Bounds bounds, long limit, KeyTotals.Query totals, String python)
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
      LitelogReader records = new LitelogReader(this, ((ReadPlan.Share) partition).parts());
      return totals == null ? records : new KeyTotals(records, totals);
    }
  }

  /** A group of runs that was requested ahead. */
  private record Fetched(SealedObject.Group group, Future<ByteBuffer> body) {}

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
  private final Deque<Fetched> ahead = new ArrayDeque<>();
  private int window = 1;
  private ByteBuffer body;
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
    SealedObject found = SealedObject.open(opening, query.bounds, query.python);
    if (query.limit == Long.MAX_VALUE && !found.groups().isEmpty()) {
      SealedObject.Group first = found.groups().get(0);
      ByteBuffer read = fetch(found.url(), first);
      found.groups().set(0, new SealedObject.Group(first.at(), first.size(), read, first.runs()));
    }
    return found;
  }

  @Override
  public boolean next() throws IOException {
    while (left > 0) {
      batch = null;
      if (worker != null) {
        batch = worker.next();
        if (batch == null) {
          stopWorker();
        }
      } else if (runs.hasNext()) {
        readRun(runs.next());
      } else if (groups.hasNext() || !ahead.isEmpty()) {
        readGroup();
      } else if (nextPart != null) {
        begin();
      } else {
        return false;
      }
      if (batch != null && batch.numRows() > 0) {
        left -= batch.numRows();
        return true;
      }
    }
    return false;
  }

  private void begin() throws IOException {
    part = nextPart;
    if (!part.isSealed()) {
      ask(part.request("read", query.bounds));
    } else {
      try {
        object = result(nextObject);
        object.metrics().forEach(metrics::add);
        groups = object.groups().iterator();
        columns.begin(part, query.bounds.within(part.log()));
      } catch (IOException error) {
        leave(part.request("read", query.bounds), "it", error);
      }
    }
    look();
  }

  private void readGroup() throws IOException {
    while (ahead.size() < window && groups.hasNext()) {
      SealedObject.Group group = groups.next();
      URI url = object.url();
      ahead.add(new Fetched(group, threads.submit(() -> fetch(url, group))));
    }
    window = Math.min(2 * window, MOST_AHEAD);
    release();
    Fetched fetched = ahead.remove();
    runs = fetched.group.runs().iterator();
    try {
      body = result(fetched.body);
    } catch (InterruptedIOException error) {
      throw error;
    } catch (IOException error) {
      LOG.debug("a request failed", error); // Python reads each of its runs
    }
  }

  private void release() {
    if (body != null) {
      ObjectBytes.release(body);
      body = null;
    }
  }

  private ByteBuffer fetch(URI url, SealedObject.Group group) throws IOException {
    if (group.body() != null) {
      return group.body();
    }
    ByteBuffer found = ObjectBytes.read(url, group.at(), group.size());
    metrics.add("bytes", group.size());
    metrics.add("requests", 1);
    return found;
  }

  /** Reads a run into {@code batch}, or has Python read it. */
  private void readRun(SealedObject.Run run) throws IOException {
    try {
      SealedObject.require(body != null, "answer to a request");
      batch = columns.load(body, run);
    } catch (IOException | RuntimeException error) {
      long stop = run.offset() + run.length();
      ObjectNode request = part.request("read", query.bounds).put("start", run.offset()).put("stop", stop);
      leave(request, "bytes " + run.offset() + " to " + stop, error);
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
    LOG.warn("{}: sealed segment {}: Python reads {}: {}", part.log().name(), part.index(), what, error.toString());
    ask(request);
  }

  private void ask(ObjectNode request) throws IOException {
    metrics.add("python", 1);
    StructType wanted = query.schema.isEmpty() ? new StructType().add("sequence", "bigint", true) : query.schema;
    request.set("columns", ReadPlan.describe(wanted));
    worker = PythonWorker.open(query.python);
    worker.read(request);
  }

  private void stopWorker() throws IOException {
    worker.close();
    worker = null;
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
      stopWorker();
    }
  }
}
