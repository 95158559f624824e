package io.txnlog.spark;

import static io.txnlog.spark.SparkVersion.linked;

import com.fasterxml.jackson.databind.JsonNode;
import java.util.HashMap;
import java.util.Map;
import java.util.UUID;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;
import org.apache.spark.sql.connector.read.streaming.MicroBatchStream;
import org.apache.spark.sql.connector.read.streaming.Offset;
import org.apache.spark.sql.connector.read.streaming.PartitionOffset;
import org.apache.spark.sql.connector.read.streaming.ReadAllAvailable;
import org.apache.spark.sql.connector.read.streaming.ReadLimit;
import org.apache.spark.sql.connector.read.streaming.SupportsRealTimeMode;
import org.apache.spark.sql.connector.read.streaming.SupportsTriggerAvailableNow;
import org.apache.spark.sql.types.StructType;

/** A stream that the log's process holds, and whose rows reach Spark in columns; in real time one by one. */
class LaneStream implements MicroBatchStream, SupportsTriggerAvailableNow, SupportsRealTimeMode {
  private final String id = UUID.randomUUID().toString();
  private final String name;
  private final StructType columns;
  private final LogCalls log;
  private final Map<String, String> options;
  private Offset initial;
  private boolean frozen;
  private boolean stopped;
  private volatile boolean realTime;
  private Offset followed;
  private Lane planned;

  LaneStream(String name, StructType columns, LogCalls log, Map<String, String> options) {
    this.name = name;
    this.columns = columns;
    this.log = log;
    this.options = options;
  }

  /** A place in the log, as the text that checkpoints keep. */
  private static final class At extends Offset {
    private final String json;

    At(JsonNode text) {
      this.json = text.asText();
    }

    At(String json) {
      this.json = json;
    }

    @Override
    public String json() {
      return json;
    }
  }

  /** Returns the name that the source has in the query's progress. */
  @Override
  public String toString() {
    return "txnlog[" + name + "]";
  }

  private JsonNode ask(String call, Map<String, ?> more) {
    return log.ask(call, arguments(more));
  }

  private Map<String, Object> arguments(Map<String, ?> more) {
    Map<String, Object> all = new HashMap<>(more);
    all.put("stream", Map.of("id", id, "options", options, "schema", columns.json(), "frozen", frozen));
    return all;
  }

  /** Returns where a new query begins; Spark asks twice, and must be told the same. */
  @Override
  public Offset initialOffset() {
    if (initial == null) {
      initial = new At(ask("streamInitial", Map.of()));
    }
    return initial;
  }

  @Override
  public Offset latestOffset() {
    throw new UnsupportedOperationException("Spark says where a batch begins");
  }

  @Override
  public Offset latestOffset(Offset start, ReadLimit limit) {
    boolean limited = !(limit instanceof ReadAllAvailable);
    return new At(ask("streamLatest", Map.of("start", start.json(), "limited", limited)));
  }

  /** Returns that there may be a limit; which one, the options say. */
  @Override
  public ReadLimit getDefaultReadLimit() {
    return ReadLimit.maxRows(Long.MAX_VALUE);
  }

  @Override
  public Offset reportLatestOffset() {
    return new At(ask("streamNewest", Map.of()));
  }

  @Override
  public void prepareForTriggerAvailableNow() {
    ask("streamFreeze", Map.of());
    frozen = true;
  }

  @Override
  public Offset deserializeOffset(String json) {
    return new At(json);
  }

  @Override
  public InputPartition[] planInputPartitions(Offset start, Offset end) {
    planned = Lane.planned(
        log, "streamPlan", arguments(Map.of("start", start.json(), "end", end.json())), columns);
    return planned.planInputPartitions();
  }

  /** Returns what reads the batch that was planned last: Spark plans a batch before it asks, one after the other. */
  @Override
  public PartitionReaderFactory createReaderFactory() {
    return realTime ? new RealTimeReader.Factory() : planned.createReaderFactory();
  }

  /** Does nothing once the stream is stopped, after which Spark may still say this of its last batch. */
  @Override
  public void commit(Offset end) {
    if (!stopped) {
      ask("streamCommit", Map.of("end", end.json()));
    }
  }

  @Override
  public void stop() {
    stopped = true;
    ask("streamStop", Map.of());
  }

  /** True if rows reach Spark one by one. */
  boolean inRows() {
    return realTime;
  }

  @Override
  public void prepareForRealTimeMode() {
    realTime = true;
  }

  /** Returns tasks that follow partitions as long as Spark has them run. */
  @Override
  public InputPartition[] planInputPartitions(Offset start) {
    followed = start;
    return RealTimeReader.tasks(log.ask("realTime", Map.of("options", options, "schema", columns.json(),
        "start", start.json(), "tasks", linked(() -> SparkInternals.cores()))), linked(() -> SparkInternals.python()));
  }

  /** Returns where a batch in real time has ended. */
  @Override
  public Offset mergeOffsets(PartitionOffset[] places) {
    return places.length == 0 ? followed : new At(log.ask("realTimeEnd", Map.of("places", places)));
  }
}
