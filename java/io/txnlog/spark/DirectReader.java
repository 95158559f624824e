package io.txnlog.spark;

import java.io.IOException;
import org.apache.spark.sql.vectorized.ColumnarBatch;

/** Reads a part of a task from files, without Python. After an exception Python reads the remaining rows. */
interface DirectReader extends AutoCloseable {
  /** Returns the next rows, or null at the end. The rows are valid until the next call. */
  ColumnarBatch next() throws IOException;

  /** Returns the position of the first entry that is not returned yet; -1 if {@link #done} counts from the start. */
  long begin();

  /** Returns the number of returned rows of the part; 0 if {@link #begin} gives the position. */
  long done();

  @Override
  void close();
}
