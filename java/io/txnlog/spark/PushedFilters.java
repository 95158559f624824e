package io.txnlog.spark;

import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Base64;
import java.util.Deque;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import org.apache.spark.sql.connector.expressions.Expression;
import org.apache.spark.sql.connector.expressions.Literal;
import org.apache.spark.sql.connector.expressions.NamedReference;
import org.apache.spark.sql.connector.expressions.filter.Predicate;
import org.apache.spark.sql.types.Decimal;
import org.apache.spark.unsafe.types.UTF8String;

/** Filters as the Python source reads them: {@code {"op": "=", "column": ["a"], "value": {"type": "long", ...}}}. */
final class PushedFilters {
  private static final Map<String, String> MIRRORED =
      Map.of("=", "=", "<=>", "<=>", "<", ">", "<=", ">=", ">", "<", ">=", "<=");
  private static final int VALUES_MAX = 1000;
  private static final int PARTS_MAX = 1000;
  private static final int DEEPEST = 32;
  private static final long EXACT_MAX = 1L << 53;

  private PushedFilters() {}

  /** Returns what a predicate says, or null if that can't be said exactly: then all rows are read. */
  static Map<String, Object> of(Expression given) {
    return of(given, 0);
  }

  private static Map<String, Object> of(Expression given, int depth) {
    if (!(given instanceof Predicate predicate)) {
      return null;
    }
    Expression[] of = predicate.children();
    String name = predicate.name();
    return switch (name) {
      case "AND", "OR", "NOT" -> combined(predicate, depth);
      case "IS_NULL" -> of[0] instanceof NamedReference a ? Map.of("op", "isnull", "column", column(a)) : null;
      case "IS_NOT_NULL" -> of[0] instanceof NamedReference a ? Map.of("op", "isnotnull", "column", column(a)) : null;
      case "STARTS_WITH" -> compared("startswith", of[0], of[1]);
      case "IN" -> in(of);
      case "<>" -> {
        Map<String, Object> equal = comparison("=", of);
        yield equal == null ? null : Map.of("op", "not", "of", List.of(equal));
      }
      default -> MIRRORED.containsKey(name) ? comparison(name, of) : null;
    };
  }

  /** Returns a combination; of what Spark nests to the left, {@code (a OR b) OR c}, one list is made. */
  private static Map<String, Object> combined(Predicate given, int depth) {
    List<Map<String, Object>> parts = new ArrayList<>();
    Deque<Expression> left = new ArrayDeque<>(List.of(given.children()));
    while (!left.isEmpty()) {
      Expression each = left.pop();
      if (each instanceof Predicate inner && inner.name().equals(given.name()) && !inner.name().equals("NOT")) {
        left.push(inner.children()[1]);
        left.push(inner.children()[0]);
        continue;
      }
      Map<String, Object> part = depth == DEEPEST || parts.size() == PARTS_MAX ? null : of(each, depth + 1);
      if (part == null) {
        return null;
      }
      parts.add(part);
    }
    return Map.of("op", given.name().toLowerCase(Locale.ROOT), "of", parts);
  }

  private static Map<String, Object> comparison(String op, Expression[] of) {
    return of[0] instanceof NamedReference ? compared(op, of[0], of[1]) : compared(MIRRORED.get(op), of[1], of[0]);
  }

  private static Map<String, Object> compared(String op, Expression column, Expression with) {
    Map<String, Object> value = with instanceof Literal<?> literal ? literal(literal) : null;
    return value == null || !(column instanceof NamedReference a) ? null
        : Map.of("op", op, "column", column(a), "value", value);
  }

  private static Map<String, Object> in(Expression[] of) {
    if (!(of[0] instanceof NamedReference column) || of.length - 1 > VALUES_MAX) {
      return null;
    }
    List<Map<String, Object>> values = new ArrayList<>();
    for (int i = 1; i < of.length; i++) {
      Map<String, Object> value = of[i] instanceof Literal<?> literal ? literal(literal) : null;
      if (value == null) {
        return null;
      }
      values.add(value);
    }
    return Map.of("op", "in", "column", column(column), "values", values);
  }

  private static List<String> column(NamedReference of) {
    return List.of(of.fieldNames());
  }

  /** Returns a literal; null of null, of other types, and of strings that don't compare by their bytes. */
  private static Map<String, Object> literal(Literal<?> of) {
    String type = of.dataType().typeName();
    Object said = said(type.startsWith("decimal(") ? "decimal" : type, of.value());
    return said == null ? null : Map.of("type", type, "value", said);
  }

  private static Object said(String type, Object value) {
    if (value == null) {
      return null;
    }
    return switch (type) {
      case "boolean", "byte", "short", "integer", "date", "timestamp", "timestamp_ntz" -> value;
      case "long" -> Math.abs((Long) value) < EXACT_MAX && (Long) value != Long.MIN_VALUE ? value : value.toString();
      case "float", "double" -> {
        double number = ((Number) value).doubleValue();
        yield Double.isFinite(number) ? (Object) number : Double.toString(number);
      }
      case "decimal" -> ((Decimal) value).toJavaBigDecimal().toPlainString();
      case "string" -> {
        String text = value.toString();
        yield UTF8String.fromString(text).equals(value) ? text : null; // bytes that are no UTF-8
      }
      case "binary" -> Base64.getEncoder().encodeToString((byte[]) value);
      default -> null;
    };
  }
}
