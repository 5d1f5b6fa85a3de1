package litelog.spark;

import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.Serializable;
import java.util.Arrays;
import java.util.HashSet;
import java.util.Locale;
import java.util.Set;
import org.apache.spark.sql.connector.expressions.Expression;
import org.apache.spark.sql.connector.expressions.Literal;
import org.apache.spark.sql.connector.expressions.NamedReference;
import org.apache.spark.sql.connector.expressions.filter.Predicate;

/** The bounds of a query: inclusive ranges of sequences and timestamps, and keys. */
final class Bounds implements Serializable {
  long first = Long.MIN_VALUE;
  long last = Long.MAX_VALUE;
  long since = Long.MIN_VALUE;
  long until = Long.MAX_VALUE;
  /** Null for all keys. */
  Set<Key> keys;
  boolean needsKey;

  record Key(byte[] bytes) implements Serializable {
    @Override
    public boolean equals(Object other) {
      return other instanceof Key key && Arrays.equals(bytes, key.bytes);
    }

    @Override
    public int hashCode() {
      return Arrays.hashCode(bytes);
    }
  }

  /** Narrows these bounds by a predicate. Returns false, and changes nothing, if they cannot express it exactly. */
  boolean add(Predicate predicate, ReadPlan plan) {
    Expression[] of = predicate.children();
    String name = of.length == 0 ? "" : column(of[0]);
    String operator = predicate.name();
    if (name.equals("key")) {
      return addKeys(operator, of);
    }
    boolean known = name.equals("sequence") ? plan.bySequence() : name.equals("timestamp") && plan.byTime();
    if (!known || of.length != 2 || !(of[1] instanceof Literal<?> literal) || !(literal.value() instanceof Long value)) {
      return false;
    }
    long low = Long.MIN_VALUE;
    long high = Long.MAX_VALUE;
    switch (operator) {
      case "=" -> low = high = value;
      case ">=" -> low = value;
      case "<=" -> high = value;
      case ">" -> low = value == Long.MAX_VALUE ? value : value + 1;
      case "<" -> high = value == Long.MIN_VALUE ? value : value - 1;
      default -> {
        return false;
      }
    }
    if (operator.equals(">") && value == Long.MAX_VALUE || operator.equals("<") && value == Long.MIN_VALUE) {
      high = Long.MIN_VALUE; // an empty range
      low = Long.MAX_VALUE;
    }
    if (name.equals("sequence")) {
      first = Math.max(first, low);
      last = Math.min(last, high);
    } else {
      since = Math.max(since, low);
      until = Math.min(until, high);
    }
    return true;
  }

  /** The column that an expression names, in lower case; empty if it is any other expression. */
  static String column(Expression expression) {
    return expression instanceof NamedReference column && column.fieldNames().length == 1
        ? column.fieldNames()[0].toLowerCase(Locale.ROOT) : "";
  }

  private boolean addKeys(String operator, Expression[] of) {
    if (operator.equals("IS_NOT_NULL")) {
      needsKey = true;
      return true;
    }
    if (!operator.equals("=") && !operator.equals("IN")) {
      return false;
    }
    Set<Key> found = new HashSet<>();
    for (Expression one : Arrays.asList(of).subList(1, of.length)) {
      if (!(one instanceof Literal<?> literal) || !(literal.value() instanceof byte[] key)) {
        return false;
      }
      found.add(new Key(key));
    }
    if (keys != null) {
      found.retainAll(keys);
    }
    keys = found;
    return true;
  }

  /** The intersection of these bounds and those of a log. */
  Bounds within(ReadPlan.Log log) {
    Bounds both = new Bounds();
    both.first = Math.max(first, log.first());
    both.last = Math.min(last, log.last());
    both.since = Math.max(since, log.since());
    both.until = Math.min(until, log.until());
    both.keys = keys;
    both.needsKey = needsKey;
    return both;
  }

  boolean hasKeys() {
    return needsKey || keys != null;
  }

  boolean mayHold(ReadPlan.Part part) {
    if (part instanceof ReadPlan.SealedPart sealed) {
      return sealed.records() > 0 && overlaps(sealed.first(), sealed.next() - 1, sealed.lowest(), sealed.highest());
    }
    return last >= ((ReadPlan.PythonPart) part).from() && first <= last && since <= until;
  }

  boolean overlaps(long low, long high, long lowest, long highest) {
    return first <= last && since <= until && low <= last && high >= first && lowest <= until && highest >= since;
  }

  boolean holdsTimes(long lowest, long highest) {
    return since <= lowest && highest <= until;
  }

  boolean holdsSequences(long low, long high) {
    return first <= low && high <= last;
  }

  boolean holdsKey(byte[] buffer, int start, int length) {
    if (length < 0) {
      return !hasKeys();
    }
    return keys == null || keys.contains(new Key(Arrays.copyOfRange(buffer, start, start + length)));
  }

  /** Adds these bounds to a request, so that a Python worker reads within them. */
  void describe(ObjectNode request) {
    request.putArray("bounds").add(first).add(last).add(since).add(until);
    request.put("needs_key", needsKey);
    if (keys != null) {
      ArrayNode given = request.putArray("keys");
      keys.forEach(key -> given.add(key.bytes()));
    }
  }
}
