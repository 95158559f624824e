package io.txnlog.spark;

import static io.txnlog.spark.SparkVersion.linked;

import com.fasterxml.jackson.databind.JsonNode;
import java.io.ByteArrayInputStream;
import java.io.IOException;
import java.util.ArrayList;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import org.apache.arrow.memory.BufferAllocator;
import org.apache.arrow.vector.ipc.ArrowStreamReader;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.PartitionReader;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;
import org.apache.spark.sql.connector.read.streaming.PartitionOffset;
import org.apache.spark.sql.connector.read.streaming.SupportsRealTimeRead;
import org.apache.spark.sql.vectorized.ArrowColumnVector;
import org.apache.spark.sql.vectorized.ColumnVector;
import org.apache.spark.sql.vectorized.ColumnarBatch;

/** Follows partitions: a Python process of the executor waits for messages and returns them as Arrow batches. */
final class RealTimeReader implements SupportsRealTimeRead<InternalRow> {
  private static final long WAIT_MILLIS_MAX = 1000; // a stopped query ends within this time

  private final Task task;
  private final LogCalls calls;
  private final BufferAllocator allocator = linked(() -> SparkInternals.allocator());
  private String at;
  private String next;
  private String answered = "";
  private int done;
  private ArrowStreamReader answer;
  private Iterator<InternalRow> rows;
  private InternalRow row;

  /**
   * Partitions and their starts.
   *
   * @param python the driver's Python interpreter.
   * @param schema the query's columns, then the columns of a row's place, as JSON.
   * @param published the index of the column that has the time of publishing.
   */
  record Task(String python, Map<String, String> options, String schema, int published, String begin)
      implements InputPartition {}

  /** The progress of a task: all rows up to {@code at}, and {@code done} rows of the answer behind it. */
  record Place(String begin, String at, String rows, int done) implements PartitionOffset {}

  /** Makes readers of tasks. */
  record Factory() implements PartitionReaderFactory {
    @Override
    public PartitionReader<InternalRow> createReader(InputPartition task) {
      return new RealTimeReader((Task) task);
    }
  }

  RealTimeReader(Task task) {
    this.task = task;
    this.calls = LogCalls.on(task.python());
    this.at = task.begin();
    this.next = at;
  }

  /** Returns the tasks in Python's answer. */
  static InputPartition[] tasks(JsonNode planned, String python) {
    List<InputPartition> tasks = new ArrayList<>();
    for (JsonNode begin : planned.get("tasks")) {
      tasks.add(new Task(python, LogCalls.texts(planned.get("options")), planned.get("schema").asText(),
          planned.get("published").asInt(), begin.asText()));
    }
    return tasks.toArray(InputPartition[]::new);
  }

  @Override
  public RecordStatus nextWithTimeout(Long start, Long millis) throws IOException {
    return nextWithTimeout(millis);
  }

  /** Returns whether a row came in time. In a killed task it throws Spark's exception for killed tasks. */
  @Override
  public RecordStatus nextWithTimeout(Long millis) throws IOException {
    try {
      return came(millis);
    } catch (Exception e) {
      if (e instanceof InterruptedException) { // it isn't declared
        linked(() -> SparkInternals.endIfKilled());
      }
      throw e;
    }
  }

  private RecordStatus came(long millis) throws IOException {
    long until = System.nanoTime() + millis * 1_000_000;
    while (!hasRow()) {
      long left = (until - System.nanoTime()) / 1_000_000;
      if (left <= 0) {
        return RecordStatus.newStatusWithoutArrivalTime(false);
      }
      JsonNode came = calls.ask("follow", Map.of("options", task.options(), "schema", task.schema(), "at", at,
          "wait_ms", Math.min(left, WAIT_MILLIS_MAX)));
      linked(() -> SparkInternals.endIfKilled()); // messages that arrive after a query's end belong to its next run
      if (!came.isNull()) {
        next = came.get("at").asText();
        answered = came.get("rows").asText();
        answer = answered.isEmpty() ? null
            : new ArrowStreamReader(new ByteArrayInputStream(LogCalls.bytes(came.get("rows"))), allocator);
      }
    }
    row = rows.next();
    done++;
    return RecordStatus.newStatusWithArrivalTimeMs(row.getLong(task.published()) / 1000);
  }

  /** True if the answer has another row. At the answer's end the reader's place moves behind the answer. */
  private boolean hasRow() throws IOException {
    while (rows == null || !rows.hasNext()) {
      if (answer == null || !answer.loadNextBatch()) {
        closeAnswer();
        at = next;
        answered = "";
        done = 0;
        return false;
      }
      ColumnVector[] columns = answer.getVectorSchemaRoot().getFieldVectors().stream().map(ArrowColumnVector::new)
          .toArray(ColumnVector[]::new);
      rows = new ColumnarBatch(columns, answer.getVectorSchemaRoot().getRowCount()).rowIterator();
    }
    return true;
  }

  @Override
  public InternalRow get() {
    return row;
  }

  @Override
  public PartitionOffset getOffset() {
    return new Place(task.begin(), at, answered, done);
  }

  @Override
  public boolean next() {
    throw new UnsupportedOperationException("read in real time");
  }

  private void closeAnswer() throws IOException {
    rows = null;
    if (answer != null) {
      answer.close();
      answer = null;
    }
  }

  @Override
  public void close() throws IOException {
    closeAnswer();
    allocator.close();
  }
}
