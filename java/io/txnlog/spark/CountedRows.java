package io.txnlog.spark;

import static io.txnlog.spark.SparkVersion.linked;

import java.util.Arrays;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.connector.read.Batch;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.PartitionReader;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.vectorized.ColumnVector;
import org.apache.spark.sql.vectorized.ColumnarBatch;

/** Rows that are known without reading a message: one with the number of messages, or so many without columns. */
record CountedRows(long[] values, long times) implements Batch {
  private static final long ROWS_OF_A_TASK = 1L << 24;

  /** Returns one row, each of whose columns is a number. */
  static CountedRows one(long number, int columns) {
    long[] values = new long[columns];
    Arrays.fill(values, number);
    return new CountedRows(values, 1);
  }

  /** Returns rows without columns. */
  static CountedRows empty(long times) {
    return new CountedRows(new long[0], times);
  }

  /** How often a task repeats the row. */
  record Task(int times) implements InputPartition {}

  /** Makes the rows where a task runs. */
  record Factory(long[] values) implements PartitionReaderFactory {
    @Override
    public boolean supportColumnarReads(InputPartition task) {
      return true;
    }

    @Override
    public PartitionReader<ColumnarBatch> createColumnarReader(InputPartition task) {
      int times = ((Task) task).times();
      ColumnVector[] columns = Arrays.stream(values)
          .mapToObj(value -> linked(() -> SparkInternals.constant(times, DataTypes.LongType, value)))
          .toArray(ColumnVector[]::new);
      ColumnarBatch rows = new ColumnarBatch(columns, times);
      return new PartitionReader<>() {
        private boolean given;

        @Override
        public boolean next() {
          boolean first = !given;
          given = true;
          return first;
        }

        @Override
        public ColumnarBatch get() {
          return rows;
        }

        @Override
        public void close() {}
      };
    }

    @Override
    public PartitionReader<InternalRow> createReader(InputPartition task) {
      throw new UnsupportedOperationException("read in columns");
    }
  }

  @Override
  public InputPartition[] planInputPartitions() {
    int tasks = Math.toIntExact((times + ROWS_OF_A_TASK - 1) / ROWS_OF_A_TASK);
    InputPartition[] all = new InputPartition[tasks];
    for (int i = 0; i < tasks; i++) {
      all[i] = new Task((int) Math.min(ROWS_OF_A_TASK, times - i * ROWS_OF_A_TASK));
    }
    return all;
  }

  @Override
  public PartitionReaderFactory createReaderFactory() {
    return new Factory(values);
  }
}
