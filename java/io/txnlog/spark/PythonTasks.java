package io.txnlog.spark;

import static io.txnlog.spark.SparkVersion.linked;

import java.io.Serializable;
import java.util.Iterator;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.connector.read.Batch;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.PartitionReader;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;
import org.apache.spark.sql.vectorized.ArrowColumnVector;
import org.apache.spark.sql.vectorized.ColumnVector;
import org.apache.spark.sql.vectorized.ColumnarBatch;

/**
 * Tasks that Python reads: Spark gets the Arrow batches as they come, in columns. From Spark's own reader of Python
 * sources it gets rows, each of which is copied.
 */
record PythonTasks(InputPartition[] planInputPartitions, PartitionReaderFactory createReaderFactory) implements Batch {
  /** The function {@code txn_source.spark.tasks.read_rows}, without a type, as Python's first pickle protocol has it. */
  private static final String READ_ROWS = "(ctxn_source.spark.tasks\nread_rows\nNt.";

  /** One task, as Python pickled it. */
  record Task(byte[] pickled) implements InputPartition {}

  /** Returns what reads tasks, with the settings of the session that plans them. */
  static PartitionReaderFactory factory() {
    return new Factory(linked(() -> SparkInternals.pythonRun(READ_ROWS)));
  }

  private record Factory(Serializable run) implements PartitionReaderFactory {
    @Override
    public boolean supportColumnarReads(InputPartition task) {
      return true;
    }

    @Override
    public PartitionReader<ColumnarBatch> createColumnarReader(InputPartition task) {
      byte[] pickled = ((Task) task).pickled();
      return new Reader(linked(() -> SparkInternals.batches((SparkInternals.PythonRun) run, pickled)));
    }

    @Override
    public PartitionReader<InternalRow> createReader(InputPartition task) {
      throw new UnsupportedOperationException("read in columns");
    }
  }

  private static final class Reader implements PartitionReader<ColumnarBatch> {
    private final Iterator<ColumnarBatch> batches;
    private ColumnarBatch batch;

    Reader(Iterator<ColumnarBatch> batches) {
      this.batches = batches;
    }

    @Override
    public boolean next() {
      batch = batches.hasNext() ? columns(batches.next()) : null;
      return batch != null;
    }

    /** Returns the columns of a batch whose rows are one struct. */
    private static ColumnarBatch columns(ColumnarBatch rows) {
      ArrowColumnVector row = (ArrowColumnVector) rows.column(0);
      ColumnVector[] columns = new ColumnVector[row.getValueVector().getField().getChildren().size()];
      for (int i = 0; i < columns.length; i++) {
        columns[i] = new Kept((ArrowColumnVector) row.getChild(i));
      }
      return new ColumnarBatch(columns, rows.numRows());
    }

    @Override
    public ColumnarBatch get() {
      return batch;
    }

    @Override
    public void close() {} // the task's end closes what runs for it
  }

  /** A column that outlives the batch: Spark closes columns after each, and these are filled again. */
  private static final class Kept extends ArrowColumnVector {
    Kept(ArrowColumnVector column) {
      super(column.getValueVector());
    }

    @Override
    public void close() {}

    @Override
    public void closeIfFreeable() {}
  }
}
