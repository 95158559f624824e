package io.txnlog.spark;

import org.apache.spark.SparkThrowable;

/** What the log refuses, in its own words, with its code; Spark shows it as it is, and not as a change it can't do. */
final class TxnLogException extends IllegalArgumentException implements SparkThrowable {
  private static final long serialVersionUID = 1;

  final String code;

  /** Takes a text with its code before it, or without. */
  TxnLogException(String code, String text) {
    super(text.startsWith("[") ? text : "[TXNLOG_" + code + "] " + text);
    this.code = code;
  }

  /** Returns what refuses something that can't be, or has no meaning for a log. */
  static TxnLogException refused(String text) {
    return new TxnLogException("INVALID_ARGUMENT", text);
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
