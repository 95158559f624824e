package io.txnlog.spark;

import org.apache.arrow.vector.ValueVector;
import org.apache.spark.sql.vectorized.ArrowColumnVector;

/** A column that outlives the batch: Spark closes the columns of each, and these are filled again. */
final class KeptColumn extends ArrowColumnVector {
  KeptColumn(ValueVector vector) {
    super(vector);
  }

  @Override
  public void close() {}

  @Override
  public void closeIfFreeable() {}
}
