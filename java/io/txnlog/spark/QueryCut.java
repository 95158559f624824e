package io.txnlog.spark;

import static io.txnlog.spark.SparkVersion.linked;

import com.fasterxml.jackson.databind.JsonNode;
import java.util.Map;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.concurrent.ConcurrentHashMap;

/** Where the scans of one query end, so that all of them see one moment: decided when the first of them is planned. */
final class QueryCut {
  private final LogCalls log;
  private final Map<String, TreeSet<String>> topics = new TreeMap<>();
  private JsonNode ends;

  private QueryCut(LogCalls log) {
    this.log = log;
  }

  /**
   * Returns the cut of the query that is being planned, with a topic that it reads; null if that ends elsewhere. All
   * scans of a query are known before one is planned: a scan that comes later is of another run, and gets a new cut.
   */
  static QueryCut of(TxnLogTable table, Map<String, String> options) {
    if (TxnLogTable.hasItsOwnEnd(options) || options.getOrDefault("consistentcut", "").equalsIgnoreCase("false")) {
      return null;
    }
    Map<Object, QueryCut> ofQuery = linked(() -> SparkInternals.ofQuery(ConcurrentHashMap::new));
    return ofQuery.compute(table.log().target(), (target, found) -> {
      QueryCut cut = found == null || found.isFixed() ? new QueryCut(table.log()) : found;
      cut.add(TxnLogRead.level(options), table.topic());
      return cut;
    });
  }

  private synchronized boolean isFixed() {
    return ends != null;
  }

  private synchronized void add(String level, String topic) {
    topics.computeIfAbsent(level, key -> new TreeSet<>()).add(topic);
  }

  /** Returns the options that say where reads at a level end; levels are cut at one moment, too. */
  synchronized Map<String, String> options(String level) {
    if (ends == null) {
      ends = log.ask("cut", Map.of("topics", topics));
    }
    return LogCalls.texts(ends.get(level));
  }
}
