package io.txnlog.spark;

import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.spark.sql.connector.expressions.filter.Predicate;
import org.apache.spark.sql.types.StructType;

/**
 * What is to be read of a topic; two that are equal and end at one cut give the same rows.
 *
 * @param options the table's and the query's, together, by their names in lower case.
 * @param columns what a row has; none if only the number of rows matters.
 * @param filters conjuncts that {@link PushedFilters} can say: rows for which one isn't true may be left out.
 * @param limit this many rows suffice.
 * @param counts the read is one row, and each column of it the number of messages.
 * @param cut where it ends, together with the query's other reads; null if that is elsewhere.
 */
record TxnLogRead(TxnLogTable table, Map<String, String> options, StructType columns,
    List<Predicate> filters, int limit, boolean counts, QueryCut cut) {
  static final int NO_LIMIT = -1;

  /** Returns the isolation level as it was asked for. */
  String level() {
    return level(options);
  }

  static String level(Map<String, String> options) {
    String connectors = options.getOrDefault("kafka.isolation.level", "read_committed"); // a log of Kafka's takes it
    return options.getOrDefault("isolationlevel", connectors);
  }

  /** True if all of it is read by Spark's own reader of Python sources, in rows. */
  boolean byPythonSource() {
    return options.getOrDefault("lane", "").equalsIgnoreCase("python");
  }

  /** True of messages; false of a table that shows the log's metadata. */
  boolean ofMessages() {
    return ofMessages(options);
  }

  static boolean ofMessages(Map<String, String> options) {
    return !options.containsKey(TxnLogTable.METADATA_TABLE);
  }

  /** True if no column is read, so that the log's metadata has the answer. */
  boolean needsNoMessages() {
    return counts || columns.isEmpty();
  }

  /** Returns the options of a source that reads this; its end is decided now, at the latest. */
  Map<String, String> pinned() {
    Map<String, String> all = new HashMap<>(options);
    if (cut != null) {
      all.putAll(cut.options(level()));
    }
    if (!filters.isEmpty()) {
      all.put("__pushedfilters", LogCalls.json(filters.stream().map(PushedFilters::of).toList()));
    }
    if (limit != NO_LIMIT) {
      all.put("__limit", Integer.toString(limit));
    }
    return all;
  }
}
