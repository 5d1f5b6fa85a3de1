package litelog.spark;

import java.io.Serializable;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.HashSet;
import java.util.Locale;
import java.util.Set;
import org.apache.spark.sql.connector.expressions.Expression;
import org.apache.spark.sql.connector.expressions.Literal;
import org.apache.spark.sql.connector.expressions.NamedReference;
import org.apache.spark.sql.connector.expressions.filter.Predicate;

/** Bounds of a query or of a log: inclusive ranges of sequences and timestamps, and keys. Its fields are also JSON. */
final class Bounds implements Serializable {
  public long first = Long.MIN_VALUE;
  public long last = Long.MAX_VALUE;
  public long since = Long.MIN_VALUE;
  public long until = Long.MAX_VALUE;
  /** Each byte as one character. Null for all keys. */
  public Set<String> keys;
  public boolean needsKey;

  /** Narrows these bounds by a predicate. Returns false, and changes nothing, if they cannot express it exactly. */
  boolean add(Predicate predicate, ReadPlan plan) {
    Expression[] of = predicate.children();
    String column = of.length == 0 ? "" : column(of[0]);
    if (column.equals("key")) {
      return addKeys(predicate.name(), of);
    }
    return of.length == 2 && of[1] instanceof Literal<?> literal && literal.value() instanceof Long value
        && value != Long.MIN_VALUE && value != Long.MAX_VALUE && addNumber(column, predicate.name(), value, plan);
  }

  /** The column that an expression names, in lower case; empty if it is any other expression. */
  static String column(Expression expression) {
    return expression instanceof NamedReference column && column.fieldNames().length == 1
        ? column.fieldNames()[0].toLowerCase(Locale.ROOT) : "";
  }

  private boolean addNumber(String column, String operator, long value, ReadPlan plan) {
    long low = operator.startsWith("<") ? Long.MIN_VALUE : operator.equals(">") ? value + 1 : value;
    long high = operator.startsWith(">") ? Long.MAX_VALUE : operator.equals("<") ? value - 1 : value;
    if (!Set.of("=", "<", "<=", ">", ">=").contains(operator)) {
      return false;
    }
    if (column.equals("sequence") && plan.head().bySequence()) {
      first = Math.max(first, low);
      last = Math.min(last, high);
      return true;
    }
    if (column.equals("timestamp") && plan.head().byTime()) {
      since = Math.max(since, low);
      until = Math.min(until, high);
      return true;
    }
    return false;
  }

  private boolean addKeys(String operator, Expression[] of) {
    if (operator.equals("IS_NOT_NULL")) {
      needsKey = true;
      return true;
    }
    if (!operator.equals("=") && !operator.equals("IN")) {
      return false;
    }
    Set<String> found = new HashSet<>();
    for (Expression one : Arrays.asList(of).subList(1, of.length)) {
      if (!(one instanceof Literal<?> literal) || !(literal.value() instanceof byte[] key)) {
        return false;
      }
      found.add(text(key, 0, key.length));
    }
    if (keys != null) {
      found.retainAll(keys);
    }
    keys = found;
    return true;
  }

  private static String text(byte[] bytes, int start, int length) {
    return new String(bytes, start, length, StandardCharsets.ISO_8859_1);
  }

  /** The intersection of these bounds and those of a log. */
  Bounds within(ReadPlan.Log log) {
    Bounds both = new Bounds();
    both.first = Math.max(first, log.bounds().first);
    both.last = Math.min(last, log.bounds().last);
    both.since = Math.max(since, log.bounds().since);
    both.until = Math.min(until, log.bounds().until);
    both.keys = keys;
    both.needsKey = needsKey;
    return both;
  }

  boolean hasKeys() {
    return needsKey || keys != null;
  }

  /** Whether sequences or timestamps are bounded. */
  boolean hasRanges() {
    return !holdSequences(Long.MIN_VALUE, Long.MAX_VALUE) || !holdTimes(Long.MIN_VALUE, Long.MAX_VALUE);
  }

  boolean holdTimes(long lowest, long highest) {
    return since <= lowest && highest <= until;
  }

  boolean holdSequences(long low, long high) {
    return first <= low && high <= last;
  }

  /** {@code length}: below 0 for null. */
  boolean holdKey(byte[] buffer, int start, int length) {
    return length < 0 ? !hasKeys() : keys == null || keys.contains(text(buffer, start, length));
  }
}
