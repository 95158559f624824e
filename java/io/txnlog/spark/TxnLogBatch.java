package io.txnlog.spark;

import com.fasterxml.jackson.databind.JsonNode;
import java.util.Map;
import java.util.Objects;
import org.apache.spark.sql.connector.catalog.SupportsRead;
import org.apache.spark.sql.connector.read.Batch;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;
import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/** A read that is pinned when its tasks are asked for: then all scans of the query are known, and get one cut. */
final class TxnLogBatch implements Batch {
  private final TxnLogRead read;
  private final QueryCut cut;
  private Map<String, String> options;
  private Batch planned;
  private InputPartition[] tasks;

  TxnLogBatch(TxnLogRead read, QueryCut cut) {
    this.read = read;
    this.cut = cut;
  }

  /** Returns the Python source's scan of some columns. */
  static Scan python(StructType columns, Map<String, String> options) {
    CaseInsensitiveStringMap given = new CaseInsensitiveStringMap(options);
    return ((SupportsRead) SparkInternals.pythonTable(columns, given)).newScanBuilder(given).build();
  }

  @Override
  public synchronized InputPartition[] planInputPartitions() {
    if (tasks == null) {
      tasks = planned().planInputPartitions();
    }
    return tasks;
  }

  @Override
  public PartitionReaderFactory createReaderFactory() {
    return planned().createReaderFactory();
  }

  private synchronized Batch planned() {
    if (planned == null) {
      options = read.upTo(cut == null ? null : cut.end(read.level()));
      planned = read.needsNoMessages() ? counted() : python(read.columns(), options).toBatch();
    }
    return planned;
  }

  private Batch counted() {
    long rows = read.table().log().ask("count", Map.of("options", options)).asLong();
    return read.counts() ? CountedRows.one(rows, read.columns().length()) : CountedRows.empty(rows);
  }

  /** Returns the number of tasks, -1 before they are planned. */
  synchronized int tasks() {
    return tasks == null ? -1 : tasks.length;
  }

  /** Returns the options of the read as it is pinned; null before. */
  synchronized Map<String, String> options() {
    return options;
  }

  @Override
  public boolean equals(Object other) {
    return other instanceof TxnLogBatch batch && read.equals(batch.read) && cut == batch.cut;
  }

  @Override
  public int hashCode() {
    return Objects.hash(read, System.identityHashCode(cut));
  }
}
