package io.txnlog.spark;

import static io.txnlog.spark.SparkVersion.linked;

import java.io.IOException;
import java.util.Iterator;
import org.apache.arrow.memory.OutOfMemoryException;
import org.apache.spark.sql.connector.read.PartitionReader;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.vectorized.ArrowColumnVector;
import org.apache.spark.sql.vectorized.ColumnVector;
import org.apache.spark.sql.vectorized.ColumnarBatch;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Reads the steps of a task. If a file can't be read, Python continues behind the last returned row: it tries the other
 * copies and raises the error. So each row is returned once.
 */
final class LaneReader implements PartitionReader<ColumnarBatch> {
  private static final Logger LOG = LoggerFactory.getLogger(LaneReader.class);
  private static final long FROM_START = -1;

  private final SparkInternals.PythonRun python;
  private final StructType columns;
  private final PartitionReaderFactory parquet;
  private final Lane.Task task;
  private int begun;
  private DirectReader direct;
  private Iterator<ColumnarBatch> rows;
  private ColumnarBatch batch;

  /** Prepares to read; {@code parquet} is null if no step has row groups. */
  LaneReader(
      SparkInternals.PythonRun python, StructType columns, PartitionReaderFactory parquet, Lane.Task task) {
    this.python = python;
    this.columns = columns;
    this.parquet = parquet;
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
      if (step.entries() != null) {
        direct = new EntryReader(step.entries(), columns, task.stored());
      } else if (step.rowGroups() != null) {
        direct = new ObjectReader(step.rowGroups(), columns, parquet);
      } else {
        byPython(step, FROM_START, 0);
      }
    }
    return true;
  }

  private boolean hasNext() throws IOException {
    if (direct != null) {
      try {
        batch = direct.next();
        return batch != null;
      } catch (Exception e) { // Spark throws checked exceptions that it doesn't declare
        if (e instanceof OutOfMemoryException || linked(() -> SparkInternals.isToEnd())) {
          throw e;
        }
        LOG.warn("Python reads on where a file can't be read: {}", e.toString());
        long begin = direct.begin();
        long done = direct.done();
        close();
        byPython(task.steps()[begun - 1], begin, done);
      }
    }
    batch = rows != null && rows.hasNext() ? columnsOf(rows.next()) : null;
    return batch != null;
  }

  private void byPython(Lane.Step step, long begin, long done) {
    rows = linked(() -> SparkInternals.batches(python, task.python(), step.first(), step.last(), begin, done));
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
    if (direct != null) {
      direct.close();
      direct = null;
    }
  }
}
