package io.txnlog.spark;

import com.fasterxml.jackson.databind.JsonNode;
import java.util.Map;
import org.apache.spark.sql.connector.catalog.Identifier;
import org.apache.spark.sql.connector.catalog.StagedTable;

/**
 * A topic that was made to be filled by a query. It is there, and empty, while the query runs; its messages come with
 * one transaction, and if that fails it goes again, unless somebody else has written to it. A driver that is killed
 * leaves it, empty.
 */
final class StagedTopic extends TxnLogTable implements StagedTable {
  private final Identifier name;

  StagedTopic(LogCalls log, JsonNode found, Map<String, String> defaults, Identifier name) {
    super(log, found, defaults, Map.of());
    this.name = name;
  }

  @Override
  public void commitStagedChanges() {}

  @Override
  public void abortStagedChanges() {
    log().ask("dropEmpty", Map.of("namespace", name.namespace(), "name", name.name()));
  }
}
