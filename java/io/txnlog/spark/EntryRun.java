package io.txnlog.spark;

import com.fasterxml.jackson.databind.JsonNode;
import java.io.Serializable;

/**
 * Neighbouring entries of one partition, in order, all of whose messages are read.
 *
 * @param numbers of each entry a row, with the columns of {@code txn_source.client.reading.direct.ENTRY_COLUMNS}.
 */
record EntryRun(String topic, int partition, String[] files, String[] texts, long[] numbers) implements Serializable {
  static final int FILE = 0;
  static final int OFFSET = 1;
  static final int LENGTH = 2;
  static final int CRC32C = 3;
  static final int MESSAGES = 4;
  static final int POSITION = 5;
  static final int LEDGER_ID = 6;
  static final int ENTRY_ID = 7;
  static final int PUBLISH_TIME = 8;
  static final int BASE_SEQUENCE = 9;
  static final int PRODUCER = 10;
  static final int TXN = 11;
  static final int STATUS = 12;
  private static final int COLUMNS = 13;

  /** Returns a run as the log's process says it. */
  static EntryRun of(JsonNode step) {
    return new EntryRun(step.get("topic").asText(), step.get("partition").asInt(), texts(step.get("files")),
        texts(step.get("texts")), LogCalls.longs(step.get("entries")));
  }

  private static String[] texts(JsonNode of) {
    String[] found = new String[of.size()];
    for (int i = 0; i < found.length; i++) {
      found[i] = of.get(i).asText();
    }
    return found;
  }

  int size() {
    return numbers.length / COLUMNS;
  }

  long get(int entry, int column) {
    return numbers[entry * COLUMNS + column];
  }

  /** Returns a text that an entry has in a column; null if it has none. */
  String text(int entry, int column) {
    int place = (int) get(entry, column);
    return place < 0 ? null : texts[place];
  }
}
