package io.txnlog.spark;

import java.util.Map;
import java.util.Optional;
import org.apache.spark.sql.connector.read.streaming.Offset;
import org.apache.spark.sql.connector.read.streaming.ReportsSourceMetrics;

/** A topic's stream through the catalog, with figures for the query's progress. */
final class TxnLogStream extends LaneStream implements ReportsSourceMetrics {
  private final TxnLogRead read;

  TxnLogStream(TxnLogRead read) {
    super(read.table().topic(), read.columns(), read.table().log(), read.options());
    this.read = read;
  }

  /** Returns how far the query is behind, and which open transaction holds it back; nothing if the log can't say. */
  @Override
  public Map<String, String> metrics(Optional<Offset> consumed) {
    try {
      return consumed.isEmpty() ? Map.of() : LogCalls.texts(read.table().log().ask(
          "behind", Map.of("options", read.options(), "offset", consumed.get().json())));
    } catch (TxnLogException e) {
      return Map.of("unknown", e.getMessage()); // a figure that is missing must not end the query
    }
  }
}
