package io.txnlog.spark;

import static io.txnlog.spark.SparkVersion.linked;

import java.io.IOException;
import java.io.InterruptedIOException;
import java.nio.channels.ClosedChannelException;
import java.util.Iterator;
import org.apache.arrow.memory.OutOfMemoryException;
import org.apache.spark.sql.connector.read.PartitionReader;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.vectorized.ArrowColumnVector;
import org.apache.spark.sql.vectorized.ColumnVector;
import org.apache.spark.sql.vectorized.ColumnarBatch;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Reads the steps of a task. What Java can't read, Python reads from the same entry on: it tries the other copies, and
 * has the words for what is wrong. An entry is handed out whole or not at all, so no row comes twice, and none is lost.
 */
final class LaneReader implements PartitionReader<ColumnarBatch> {
  private static final Logger LOG = LoggerFactory.getLogger(LaneReader.class);
  private static final long FROM_START = -1;

  private final SparkInternals.PythonRun python;
  private final StructType columns;
  private final Lane.Task task;
  private int begun;
  private EntryReader entries;
  private Iterator<ColumnarBatch> rows;
  private ColumnarBatch batch;

  LaneReader(SparkInternals.PythonRun python, StructType columns, Lane.Task task) {
    this.python = python;
    this.columns = columns;
    this.task = task;
  }

  @Override
  public boolean next() throws IOException {
    while (!hasNext()) {
      close();
      if (begun == task.steps().length) {
        return false;
      }
      Lane.Step step = task.steps()[begun++];
      if (step.entries() == null) {
        byPython(step, FROM_START);
      } else {
        entries = new EntryReader(step.entries(), columns, task.stored());
      }
    }
    return true;
  }

  private boolean hasNext() throws IOException {
    if (entries != null) {
      try {
        batch = entries.next();
        return batch != null;
      } catch (ClosedChannelException | InterruptedIOException | OutOfMemoryException e) { // the task is to end
        throw e;
      } catch (IOException | RuntimeException e) {
        LOG.warn("topic {}, partition {}: read by Python from an entry on: {}", entries.run().topic(),
            entries.run().partition(), e.toString());
        long from = entries.position();
        close();
        byPython(task.steps()[begun - 1], from);
      }
    }
    batch = rows != null && rows.hasNext() ? columnsOf(rows.next()) : null;
    return batch != null;
  }

  private void byPython(Lane.Step step, long from) {
    rows = linked(() -> SparkInternals.batches(python, task.python(), step.first(), step.last(), from));
  }

  /** Returns the columns of a batch whose rows are one struct. */
  private static ColumnarBatch columnsOf(ColumnarBatch rows) {
    ArrowColumnVector row = (ArrowColumnVector) rows.column(0);
    ColumnVector[] columns = new ColumnVector[row.getValueVector().getField().getChildren().size()];
    for (int i = 0; i < columns.length; i++) {
      columns[i] = new KeptColumn(((ArrowColumnVector) row.getChild(i)).getValueVector());
    }
    return new ColumnarBatch(columns, rows.numRows());
  }

  @Override
  public ColumnarBatch get() {
    return batch;
  }

  /** Lets go of files and memory; the task's end closes Python's part. */
  @Override
  public void close() {
    rows = null;
    if (entries != null) {
      entries.close();
      entries = null;
    }
  }
}
