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

  @Override
  public String getCondition() {
    return "TXNLOG_" + code;
  }
}
