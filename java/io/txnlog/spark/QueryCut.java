package io.txnlog.spark;

import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.TreeSet;

/** Where the scans of one query end, so that all of them see one moment: decided when the first of them is planned. */
final class QueryCut {
  private final Map<String, TreeSet<String>> topics = new TreeMap<>();
  private final Map<String, String> ends = new TreeMap<>();

  /** Notes that the query reads a topic at a level. */
  synchronized void add(String level, String topic) {
    if (topics.computeIfAbsent(level, key -> new TreeSet<>()).add(topic)) {
      ends.remove(level);
    }
  }

  /** Returns where the topics of a level end. */
  synchronized String end(LogCalls log, String level) {
    return ends.computeIfAbsent(level, key ->
        log.ask("cut", Map.of("topics", List.copyOf(topics.get(level)), "level", level)).asText());
  }
}
