package litelog.spark;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.Closeable;
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

/** Reads ranges of an object's bytes. Any failure is an IOException that names no URL. */
interface ObjectBytes extends Closeable {
  byte[] read(long at, int length) throws IOException;

  /** Opens a file of the log's folder, or an object at the URL that Python signs for it. */
  static ObjectBytes open(ReadPlan.SealedPart part, String python) throws IOException {
    if (part.log().folder() != null) {
      return new InFile(FileChannel.open(Path.of(part.log().folder(), part.key())));
    }
    ObjectNode request = ReadPlan.MAPPER.createObjectNode().put("ask", "sign");
    request.put("log", part.log().pickled()).put("key", part.key());
    try (PythonWorker worker = PythonWorker.open(python)) {
      JsonNode url = ReadPlan.MAPPER.readTree(worker.answer(request));
      SealedObject.require(url.isTextual(), "URL of the object");
      return new Signed(URI.create(url.asText()), part.size());
    }
  }

  record InFile(FileChannel file) implements ObjectBytes {
    @Override
    public byte[] read(long at, int length) throws IOException {
      ByteBuffer found = ByteBuffer.allocate(length);
      while (found.hasRemaining()) {
        if (file.read(found, at + found.position()) < 0) {
          throw new EOFException("the file ends early");
        }
      }
      return found.array();
    }

    @Override
    public void close() throws IOException {
      file.close();
    }
  }

  /** An object of {@code size} bytes, by HTTP. The URL is a secret for as long as it is valid. */
  record Signed(URI url, long size) implements ObjectBytes {
    private static final HttpClient HTTP = HttpClient.newBuilder().version(HttpClient.Version.HTTP_1_1)
        .connectTimeout(Duration.ofSeconds(10)).build();

    @Override
    public byte[] read(long at, int length) throws IOException {
      String range = "bytes " + at + "-" + (at + length - 1) + "/" + size;
      HttpRequest request = HttpRequest.newBuilder(url).timeout(Duration.ofSeconds(60))
          .header("Range", range.substring(0, range.indexOf('/')).replace(' ', '=')).build();
      try {
        HttpResponse<InputStream> answer = HTTP.send(request, HttpResponse.BodyHandlers.ofInputStream());
        try (InputStream body = answer.body()) {
          SealedObject.require(answer.statusCode() == 206
              && range.equals(answer.headers().firstValue("Content-Range").orElse("")),
              "answer with status " + answer.statusCode());
          byte[] found = body.readNBytes(length);
          SealedObject.require(found.length == length, "length of the answer");
          return found;
        }
      } catch (InterruptedException error) {
        throw new InterruptedIOException("the task was ended");
      }
    }

    @Override
    public void close() {}

    @Override
    public String toString() {
      return "an object at a signed URL";
    }
  }
}
