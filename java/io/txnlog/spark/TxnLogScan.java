package io.txnlog.spark;

import static io.txnlog.spark.SparkVersion.linked;

import com.fasterxml.jackson.databind.JsonNode;
import java.util.Map;
import java.util.OptionalLong;
import org.apache.spark.sql.connector.read.Batch;
import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.connector.read.Statistics;
import org.apache.spark.sql.connector.read.SupportsReportStatistics;
import org.apache.spark.sql.connector.read.streaming.MicroBatchStream;
import org.apache.spark.sql.types.StructType;

/** A read of a topic. Nothing is asked of the log, nor pinned, before Spark wants an estimate, a text, or to run. */
final class TxnLogScan implements Scan, SupportsReportStatistics {
  private final TxnLogRead read;
  private final TxnLogBatch batch;
  private volatile boolean streams;
  private volatile LaneStream stream;
  private JsonNode outlook;
  private JsonNode pinned;

  TxnLogScan(TxnLogRead read) {
    this.read = read;
    this.batch = new TxnLogBatch(read);
  }

  @Override
  public StructType readSchema() {
    return read.columns();
  }

  @Override
  public ColumnarSupportMode columnarSupportMode() {
    boolean rows = read.byPythonSource() || (stream != null && stream.inRows());
    return rows ? ColumnarSupportMode.UNSUPPORTED : ColumnarSupportMode.SUPPORTED;
  }

  @Override
  public Batch toBatch() {
    return batch;
  }

  @Override
  public MicroBatchStream toMicroBatchStream(String checkpoint) {
    streams = true;
    if (read.byPythonSource()) {
      return linked(() -> SparkInternals.pythonScan(read.columns(), read.options())).toMicroBatchStream(checkpoint);
    }
    stream = new LaneStream(read.table().topic(), read.columns(), read.table().log(), read.options());
    return stream;
  }

  @Override
  public Statistics estimateStatistics() {
    try {
      if (read.ofMessages()) {
        return estimated();
      }
    } catch (TxnLogException e) { // told when the query runs
    }
    return new Estimate(OptionalLong.empty(), OptionalLong.empty());
  }

  private Statistics estimated() {
    long whole = outlook().get("rows").asLong();
    long rows = read.counts() ? 1 : limited(whole);
    StructType stored = read.table().schema();
    double payload = 0;
    double added = 0;
    for (String name : read.columns().fieldNames()) {
      double size = read.columns().apply(name).dataType().defaultSize();
      if (read.table().isStored(name)) {
        payload += size;
      } else {
        added += size;
      }
    }
    double ofRow = whole == 0 ? 0 : outlook().get("bytes").asDouble() / whole * payload / stored.defaultSize();
    return new Estimate(OptionalLong.of(Math.max(1, (long) (rows * (ofRow + added)))), OptionalLong.of(rows));
  }

  private record Estimate(OptionalLong sizeInBytes, OptionalLong numRows) implements Statistics {}

  private long limited(long rows) {
    return read.limit() == TxnLogRead.NO_LIMIT ? rows : Math.min(rows, read.limit());
  }

  /** Says what is read, in one line: as it is pinned, or, before the query runs, as it would be now. */
  @Override
  public String description() {
    StringBuilder text = new StringBuilder("txnlog ").append(read.table().topic());
    if (read.ofMessages()) {
      text.append(", ").append(read.level());
    } else {
      text.append(", its ").append(read.options().get(TxnLogTable.METADATA_TABLE));
    }
    if (read.ofMessages() && !streams) { // a batch of a stream has bounds of its own, which the query's progress tells
      text.append(range()).append(batch.lane() == null ? "" : "; " + batch.lane());
    }
    text.append(read.needsNoMessages() ? "; counted by the metadata"
        : "; columns: " + String.join(", ", read.columns().fieldNames()));
    if (!read.filters().isEmpty()) {
      text.append("; skips by: ").append(String.join(" AND ", read.filters().stream().map(Object::toString).toList()));
    }
    return text.append(read.limit() == TxnLogRead.NO_LIMIT ? "" : "; limit: " + read.limit()).toString();
  }

  private String range() {
    int tasks = batch.tasks();
    try {
      JsonNode seen = tasks < 0 ? outlook() : pinned();
      return (tasks < 0 ? ", so far " : ", ") + seen.get("bounds").asText() + "; " + seen.get("ledgers").asText()
          + "; tasks: " + (tasks < 0 ? "about " + seen.get("tasks").asText() : tasks);
    } catch (TxnLogException e) {
      return "; " + e.getMessage();
    }
  }

  /** Returns what the read would find now: asked once, so that plans stay cheap. */
  private synchronized JsonNode outlook() {
    if (outlook == null) {
      outlook = ask(read.options());
    }
    return outlook;
  }

  private synchronized JsonNode pinned() {
    if (pinned == null) {
      pinned = ask(batch.options());
    }
    return pinned;
  }

  private JsonNode ask(Map<String, String> options) {
    return read.table().log().ask("outlook", Map.of("options", options));
  }

  /** Equal scans of one query are read once, where Spark can. */
  @Override
  public boolean equals(Object other) {
    return other instanceof TxnLogScan scan && read.equals(scan.read);
  }

  @Override
  public int hashCode() {
    return read.hashCode();
  }
}
