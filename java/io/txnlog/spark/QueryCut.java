package io.txnlog.spark;

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

  /** Returns the cut of the query that is being planned, with a topic that it reads; null if that has its own end. */
  static QueryCut of(TxnLogTable table, Map<String, String> options) {
    if (table.hasItsOwnEnd(options)) {
      return null;
    }
    Map<Object, QueryCut> ofQuery = SparkInternals.ofQuery(ConcurrentHashMap::new);
    QueryCut cut = ofQuery.computeIfAbsent(table.log().target(), target -> new QueryCut(table.log()));
    cut.add(TxnLogRead.level(options), table.topic());
    return cut;
  }

  private synchronized void add(String level, String topic) {
    if (topics.computeIfAbsent(level, key -> new TreeSet<>()).add(topic)) {
      ends = null;
    }
  }

  /** Returns where the topics of a level end; levels are cut at one moment, too. */
  synchronized String end(String level) {
    if (ends == null) {
      ends = log.ask("cut", Map.of("topics", topics));
    }
    return ends.get(level).asText();
  }
}
