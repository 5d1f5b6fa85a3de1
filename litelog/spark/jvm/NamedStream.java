package litelog.spark;

import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Proxy;
import org.apache.spark.sql.connector.read.streaming.MicroBatchStream;
import org.apache.spark.sql.connector.read.streaming.SupportsTriggerAvailableNow;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/** Descriptions of scans, which name the logs. Spark describes a stream's source by its {@code toString}. */
final class NamedStream {
  private NamedStream() {}

  /** The stream of the data source in Python, with a description. */
  static MicroBatchStream of(MicroBatchStream stream, String logs) {
    if (!(stream instanceof SupportsTriggerAvailableNow)) {
      return stream;
    }
    Class<?>[] types = {MicroBatchStream.class, SupportsTriggerAvailableNow.class};
    return (MicroBatchStream) Proxy.newProxyInstance(NamedStream.class.getClassLoader(), types, (self, method, given) -> {
      try {
        return method.getName().equals("toString") ? logs : method.invoke(stream, given);
      } catch (InvocationTargetException error) {
        throw error.getCause();
      }
    });
  }

  /** The logs in the options, as the user wrote them, without secrets. */
  static String logsOf(CaseInsensitiveStringMap options) {
    String given = options.getOrDefault("paths", options.getOrDefault("path", ""));
    String users = "://([^/\"]*:[^\"]*|[^/\"]*)@"; // a password may hold a slash
    String queries = "(://[^\"?#]*)[?#][^\"]*";
    return "litelog " + given.replaceAll(users, "://").replaceAll(queries, "$1");
  }
}
