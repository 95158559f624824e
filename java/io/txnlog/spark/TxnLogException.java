package io.txnlog.spark;

import org.apache.spark.SparkThrowable;

/** What the log refuses, in its own words, with its code; Spark shows it as it is, and never as a change it can't do. */
final class TxnLogException extends IllegalArgumentException implements SparkThrowable {
  private static final long serialVersionUID = 1;

  final String code;

  TxnLogException(String code, String message) {
    super(message);
    this.code = code;
  }

  /** Throws what a method doesn't declare, as Scala does. */
  @SuppressWarnings("unchecked")
  static <E extends Throwable> RuntimeException undeclared(Throwable error) throws E {
    throw (E) error;
  }

  @Override
  public String getCondition() {
    return "TXNLOG_" + code;
  }
}
