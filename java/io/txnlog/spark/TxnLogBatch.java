package io.txnlog.spark;

import static io.txnlog.spark.SparkVersion.linked;

import java.util.Map;
import org.apache.spark.sql.connector.read.Batch;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;

/** A read that is pinned when its tasks are asked for: then all scans of the query are known, and get one cut. */
final class TxnLogBatch implements Batch {
  private final TxnLogRead read;
  private Map<String, String> options;
  private Batch planned;
  private InputPartition[] tasks;

  TxnLogBatch(TxnLogRead read) {
    this.read = read;
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
      options = read.pinned();
      planned = read.needsNoMessages() ? counted() : read.byPythonSource()
          ? linked(() -> SparkInternals.pythonScan(read.columns(), options)).toBatch() : inColumns();
    }
    return planned;
  }

  private Batch inColumns() {
    Map<String, Object> wanted = Map.of("options", options, "schema", read.columns().json());
    return Lane.planned(read.table().log(), "plan", wanted, read.columns());
  }

  private Batch counted() {
    long rows = read.table().log().ask("count", Map.of("options", options)).asLong();
    return read.counts() ? CountedRows.one(rows, read.columns().length()) : CountedRows.empty(rows);
  }

  /** Returns the number of tasks, -1 before they are planned. */
  synchronized int tasks() {
    return tasks == null ? -1 : tasks.length;
  }

  /** Returns how it is read, which is known once it is planned; null before, and of counted rows. */
  synchronized String lane() {
    return planned instanceof Lane lane ? lane.text() : null;
  }

  /** Returns the options of the read as it is pinned; null before. */
  synchronized Map<String, String> options() {
    return options;
  }

  @Override
  public boolean equals(Object other) {
    return other instanceof TxnLogBatch batch && read.equals(batch.read);
  }

  @Override
  public int hashCode() {
    return read.hashCode();
  }
}
