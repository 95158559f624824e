package io.txnlog.spark;

import static io.txnlog.spark.SparkVersion.linked;

import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;
import org.apache.spark.sql.connector.read.streaming.MicroBatchStream;
import org.apache.spark.sql.connector.read.streaming.Offset;
import org.apache.spark.sql.connector.read.streaming.ReadLimit;
import org.apache.spark.sql.connector.read.streaming.ReportsSourceMetrics;
import org.apache.spark.sql.connector.read.streaming.SupportsTriggerAvailableNow;

/** The Python source's stream, with a name and figures for the query's progress. */
final class TxnLogStream implements MicroBatchStream, SupportsTriggerAvailableNow, ReportsSourceMetrics {
  private final TxnLogRead read;
  private final MicroBatchStream python;
  private final SupportsTriggerAvailableNow admission;
  private volatile Lane planned;

  TxnLogStream(TxnLogRead read) {
    this.read = read;
    this.python = linked(() -> SparkInternals.pythonScan(read.columns(), read.options())).toMicroBatchStream("");
    this.admission = (SupportsTriggerAvailableNow) python;
  }

  /** Returns the name that the source has in the query's progress. */
  @Override
  public String toString() {
    return "txnlog[" + read.table().topic() + "]";
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

  // The rest is the Python source's.

  @Override public Offset initialOffset() { return python.initialOffset(); }

  @Override public Offset latestOffset() { return python.latestOffset(); }

  @Override public Offset latestOffset(Offset start, ReadLimit limit) { return admission.latestOffset(start, limit); }

  @Override public ReadLimit getDefaultReadLimit() { return admission.getDefaultReadLimit(); }

  @Override public Offset reportLatestOffset() { return admission.reportLatestOffset(); }

  @Override public void prepareForTriggerAvailableNow() { admission.prepareForTriggerAvailableNow(); }

  @Override public InputPartition[] planInputPartitions(Offset start, Offset end) {
    InputPartition[] tasks = python.planInputPartitions(start, end);
    if (read.byPythonSource()) {
      return tasks;
    }
    List<byte[]> pickled = Arrays.stream(tasks).map(task -> linked(() -> SparkInternals.pickled(task))).toList();
    Map<String, Object> wanted = Map.of("tasks", pickled, "options", read.options());
    planned = Lane.planned(read.table().log(), "streamPlan", wanted, read.columns());
    return planned.planInputPartitions();
  }

  /** Returns what reads the batch that was planned last: Spark plans a batch before it asks, one after the other. */
  @Override public PartitionReaderFactory createReaderFactory() {
    return read.byPythonSource() ? python.createReaderFactory() : planned.createReaderFactory();
  }

  @Override public Offset deserializeOffset(String json) { return python.deserializeOffset(json); }

  @Override public void commit(Offset end) { python.commit(end); }

  @Override public void stop() { python.stop(); }
}
