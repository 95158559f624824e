package io.txnlog.spark;

/** What the log refuses, in its own words, with its code. */
final class TxnLogException extends IllegalArgumentException {
  final String code;

  TxnLogException(String code, String message) {
    super(message);
    this.code = code;
  }
}
