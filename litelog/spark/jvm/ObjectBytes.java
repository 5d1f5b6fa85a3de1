package litelog.spark;

import static litelog.spark.SealedObject.require;

import java.io.EOFException;
import java.io.IOException;
import java.io.InputStream;
import java.io.InterruptedIOException;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.file.Path;
import java.time.Duration;

/**
 * Reads ranges of bytes of a file, or of an object by HTTP. Its URL is a secret for as long as it is valid: errors do
 * not name it.
 */
final class ObjectBytes {
  private static final HttpClient HTTP = HttpClient.newBuilder().version(HttpClient.Version.HTTP_1_1)
      .connectTimeout(Duration.ofSeconds(10)).build();

  private ObjectBytes() {}

  static byte[] read(URI url, long at, int length) throws IOException {
    return url.getScheme().equals("file") ? readFile(Path.of(url), at, length) : get(url, at, length);
  }

  private static byte[] readFile(Path path, long at, int length) throws IOException {
    ByteBuffer found = ByteBuffer.allocate(length);
    try (FileChannel file = FileChannel.open(path)) {
      while (found.hasRemaining()) {
        if (file.read(found, at + found.position()) < 0) {
          throw new EOFException("the file ends early");
        }
      }
    }
    return found.array();
  }

  private static byte[] get(URI url, long at, int length) throws IOException {
    String range = at + "-" + (at + length - 1);
    HttpRequest request =
        HttpRequest.newBuilder(url).timeout(Duration.ofSeconds(60)).header("Range", "bytes=" + range).build();
    try {
      HttpResponse<InputStream> answer = HTTP.send(request, HttpResponse.BodyHandlers.ofInputStream());
      try (InputStream body = answer.body()) {
        String held = answer.headers().firstValue("Content-Range").orElse("");
        require(answer.statusCode() == 206 && held.startsWith("bytes " + range + "/"),
            "answer with status " + answer.statusCode());
        byte[] found = body.readNBytes(length);
        require(found.length == length, "length of the answer");
        return found;
      }
    } catch (InterruptedException error) {
      throw new InterruptedIOException("the task was ended");
    }
  }
}
