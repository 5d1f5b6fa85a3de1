package litelog.spark;

import static litelog.spark.SealedObject.require;

import java.io.IOException;
import java.io.InputStream;
import java.io.InterruptedIOException;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.nio.ByteBuffer;
import java.nio.channels.Channels;
import java.nio.channels.FileChannel;
import java.nio.channels.ReadableByteChannel;
import java.nio.file.Path;
import java.time.Duration;
import java.util.Deque;
import java.util.concurrent.ConcurrentLinkedDeque;

/**
 * Reads ranges of bytes of a file, or of an object by HTTP. Its URL is a secret for as long as it is valid: errors do
 * not name it. The JVM keeps buffers for later reads: it would fill new ones with zeros, and collect them as garbage.
 */
final class ObjectBytes {
  private static final HttpClient HTTP = HttpClient.newBuilder().version(HttpClient.Version.HTTP_1_1)
      .connectTimeout(Duration.ofSeconds(10)).build();
  private static final Deque<ByteBuffer> IDLE = new ConcurrentLinkedDeque<>();
  private static final int MOST_IDLE = 4 * Runtime.getRuntime().availableProcessors();
  /** Room for a group of runs (FETCH_BYTES in sealed_reader.py), also if its frames could not be compressed. */
  private static final int BUFFER_BYTES = (4 << 20) + (4 << 10);

  private ObjectBytes() {}

  /** Takes back a buffer that no one uses any more. */
  static void release(ByteBuffer buffer) {
    if (buffer.capacity() == BUFFER_BYTES && IDLE.size() < MOST_IDLE) {
      IDLE.push(buffer);
    }
  }

  private static ByteBuffer buffer(int length) {
    ByteBuffer kept = length <= BUFFER_BYTES ? IDLE.poll() : ByteBuffer.allocate(length);
    return (kept == null ? ByteBuffer.allocateDirect(BUFFER_BYTES) : kept.clear()).limit(length);
  }

  static ByteBuffer read(URI url, long at, int length) throws IOException {
    ByteBuffer into = buffer(length);
    String range = at + "-" + (at + length - 1);
    try (ReadableByteChannel from = url.getScheme().equals("file") ? FileChannel.open(Path.of(url)).position(at)
        : Channels.newChannel(get(url, range))) {
      while (into.hasRemaining()) {
        require(from.read(into) >= 0, "length of the answer");
      }
    }
    return into.flip();
  }

  private static InputStream get(URI url, String range) throws IOException {
    HttpRequest request =
        HttpRequest.newBuilder(url).timeout(Duration.ofSeconds(60)).header("Range", "bytes=" + range).build();
    try {
      HttpResponse<InputStream> answer = HTTP.send(request, HttpResponse.BodyHandlers.ofInputStream());
      String held = answer.headers().firstValue("Content-Range").orElse("");
      if (answer.statusCode() != 206 || !held.startsWith("bytes " + range + "/")) {
        answer.body().close();
        throw new IOException("answer with status " + answer.statusCode());
      }
      return answer.body();
    } catch (InterruptedException error) {
      throw new InterruptedIOException("the task was ended");
    }
  }
}
