package io.txnlog.spark;

import java.io.IOException;
import java.io.InputStream;
import java.io.UncheckedIOException;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.function.Supplier;

/** Sees to it that the jar and Spark fit together. */
final class SparkVersion {
  private SparkVersion() {}

  /** Refuses a Spark of another minor version than the one that this jar was compiled with. */
  static void check() {
    if (!minor(compiled()).equals(minor(used()))) {
      throw other("");
    }
  }

  /** Returns what uses Spark's internals, a lambda, or says which Spark they are of, if this one's are others. */
  static <T> T linked(Supplier<T> use) {
    try {
      return use.get();
    } catch (LinkageError e) {
      throw other(" (" + e + ")");
    }
  }

  private static String used() {
    return org.apache.spark.package$.MODULE$.SPARK_VERSION();
  }

  private static String compiled() {
    try (InputStream resource = SparkVersion.class.getResourceAsStream("spark-version")) {
      return new String(resource.readAllBytes(), StandardCharsets.UTF_8);
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    }
  }

  private static TxnLogException other(String why) {
    return new TxnLogException("NO_JAR", "The catalog's jar is for Spark " + compiled() + ", and this is Spark "
        + used() + why + ". Take the jar that `txnlog spark-jar` names where this Spark is installed.");
  }

  private static String minor(String version) {
    return String.join(".", Arrays.asList(version.split("\\.")).subList(0, 2));
  }
}
