package io.txnlog.spark;

import static io.txnlog.spark.SparkVersion.linked;

import java.util.Arrays;
import java.util.List;
import java.util.Map;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;
import org.apache.spark.sql.connector.read.streaming.MicroBatchStream;
import org.apache.spark.sql.connector.read.streaming.Offset;
import org.apache.spark.sql.connector.read.streaming.PartitionOffset;
import org.apache.spark.sql.connector.read.streaming.ReadLimit;
import org.apache.spark.sql.connector.read.streaming.SupportsRealTimeMode;
import org.apache.spark.sql.connector.read.streaming.SupportsTriggerAvailableNow;
import org.apache.spark.sql.types.StructType;

/** The Python source's stream, whose rows reach Spark in columns; in real time one by one, as they come. */
class LaneStream implements MicroBatchStream, SupportsTriggerAvailableNow, SupportsRealTimeMode {
  private final MicroBatchStream python;
  private final SupportsTriggerAvailableNow admission;
  private final boolean inRows;
  private final StructType columns;
  private final LogCalls log;
  private final Map<String, String> options;
  private volatile Lane planned;
  private volatile boolean realTime;
  private volatile Offset begun;

  /** Takes the Python source's stream; {@code inRows} leaves reading to it, too. */
  LaneStream(
      MicroBatchStream python, boolean inRows, StructType columns, LogCalls log, Map<String, String> options) {
    this.python = python;
    this.admission = (SupportsTriggerAvailableNow) python;
    this.inRows = inRows;
    this.columns = columns;
    this.log = log;
    this.options = options;
  }

  /** True if rows reach Spark one by one. */
  boolean inRows() {
    return inRows || realTime;
  }

  @Override
  public void prepareForRealTimeMode() {
    realTime = true;
  }

  /** Returns tasks that follow partitions as long as Spark has them run. */
  @Override
  public InputPartition[] planInputPartitions(Offset start) {
    begun = start;
    return RealTimeReader.tasks(FormatTable.ANY_LOG.ask("realTime", Map.of("options", options, "schema", columns.json(),
        "start", start.json(), "tasks", linked(() -> SparkInternals.cores()))), linked(() -> SparkInternals.python()));
  }

  /** Returns where a batch in real time has ended. */
  @Override
  public Offset mergeOffsets(PartitionOffset[] places) {
    return places.length == 0 ? begun
        : python.deserializeOffset(FormatTable.ANY_LOG.ask("realTimeEnd", Map.of("places", places)).asText());
  }

  @Override
  public InputPartition[] planInputPartitions(Offset start, Offset end) {
    InputPartition[] tasks = python.planInputPartitions(start, end);
    if (inRows) {
      return tasks;
    }
    List<byte[]> pickled = Arrays.stream(tasks).map(task -> linked(() -> SparkInternals.pickled(task))).toList();
    planned = Lane.planned(log, "lanes", Map.of("tasks", pickled, "options", options), columns);
    return planned.planInputPartitions();
  }

  /** Returns what reads the batch that was planned last: Spark plans a batch before it asks, one after the other. */
  @Override
  public PartitionReaderFactory createReaderFactory() {
    if (realTime) {
      return new RealTimeReader.Factory();
    }
    return inRows ? python.createReaderFactory() : planned.createReaderFactory();
  }

  // The rest is the Python source's.

  @Override public Offset initialOffset() { return python.initialOffset(); }

  @Override public Offset latestOffset() { return python.latestOffset(); }

  @Override public Offset latestOffset(Offset start, ReadLimit limit) { return admission.latestOffset(start, limit); }

  @Override public ReadLimit getDefaultReadLimit() { return admission.getDefaultReadLimit(); }

  @Override public Offset reportLatestOffset() { return admission.reportLatestOffset(); }

  @Override public void prepareForTriggerAvailableNow() { admission.prepareForTriggerAvailableNow(); }

  @Override public Offset deserializeOffset(String json) { return python.deserializeOffset(json); }

  @Override
  public void commit(Offset end) {
    if (!realTime) { // in which there are no subscriptions; and Spark does this after it has stopped the stream
      python.commit(end);
    }
  }

  @Override public void stop() { python.stop(); }
}
