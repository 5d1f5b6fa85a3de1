package litelog.spark;

import java.lang.reflect.Field;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.nio.ByteBuffer;
import java.util.Deque;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.Future;
import org.apache.spark.sql.types.StructType;

/** A task that Spark ends while it waits for its next group. Prints the error, and how many buffers are kept for reads. */
final class EndedTask {
  public static void main(String[] none) throws Exception {
    var reader = new LitelogReader(new LitelogReader.Factory(new StructType(), Long.MAX_VALUE, null, "python3"), List.of());
    ByteBuffer body = ByteBuffer.allocateDirect((int) field(ObjectBytes.class, "BUFFER_BYTES").get(null));
    field(LitelogReader.class, "group").set(reader, new SealedObject.Group(0, 1, body, List.of()));
    ahead(reader).add(new CompletableFuture<>());
    Method next = LitelogReader.class.getDeclaredMethod("readGroup");
    next.setAccessible(true);
    Thread.currentThread().interrupt();
    try {
      next.invoke(reader);
    } catch (InvocationTargetException error) {
      System.out.println(error.getCause().getMessage());
    }
    Thread.interrupted();
    reader.close();
    System.out.println(((Deque<?>) field(ObjectBytes.class, "IDLE").get(null)).size());
  }

  @SuppressWarnings("unchecked")
  private static Deque<Future<SealedObject.Group>> ahead(LitelogReader reader) throws Exception {
    return (Deque<Future<SealedObject.Group>>) field(LitelogReader.class, "ahead").get(reader);
  }

  private static Field field(Class<?> holder, String name) throws Exception {
    Field found = holder.getDeclaredField(name);
    found.setAccessible(true);
    return found;
  }
}
