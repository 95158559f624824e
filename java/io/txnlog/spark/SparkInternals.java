package io.txnlog.spark;

import java.io.IOException;
import java.io.InputStream;
import java.io.UncheckedIOException;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.Map;
import java.util.WeakHashMap;
import java.util.function.Supplier;
import org.apache.spark.SparkConf;
import org.apache.spark.SparkEnv;
import org.apache.spark.sql.catalyst.QueryPlanningTracker;
import org.apache.spark.sql.connector.catalog.SupportsRead;
import org.apache.spark.sql.connector.catalog.SupportsWrite;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.connector.catalog.TableProvider;
import org.apache.spark.sql.connector.expressions.Transform;
import org.apache.spark.sql.execution.datasources.DataSource;
import org.apache.spark.sql.internal.SQLConf;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/** All that is used of Spark and isn't public: what can break with its next release is in this file. */
final class SparkInternals {
  private static final Map<QueryPlanningTracker, Object> QUERIES = new WeakHashMap<>();

  private SparkInternals() {}

  /** Refuses a Spark of another minor version than the one that this jar was compiled with. */
  static void checkVersion() {
    String used = org.apache.spark.package$.MODULE$.SPARK_VERSION();
    String compiled;
    try (InputStream resource = SparkInternals.class.getResourceAsStream("spark-version")) {
      compiled = new String(resource.readAllBytes(), StandardCharsets.UTF_8);
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    }
    if (!minor(compiled).equals(minor(used))) {
      throw otherSpark(compiled, used);
    }
  }

  private static TxnLogException otherSpark(String compiled, String used) {
    return new TxnLogException("NO_JAR", "[TXNLOG_NO_JAR] The catalog's jar is for Spark " + compiled
        + ", and this is Spark " + used + ". Take the jar that `txnlog spark-jar` names where this Spark is installed.");
  }

  private static String minor(String version) {
    return String.join(".", Arrays.asList(version.split("\\.")).subList(0, 2));
  }

  /** Returns the table that the Python source makes, with the columns that are to be read. */
  static Table pythonTable(StructType schema, CaseInsensitiveStringMap options) {
    TableProvider source = DataSource.lookupDataSourceV2("txnlog", SQLConf.get()).get();
    return source.getTable(schema, new Transform[0], options.asCaseSensitiveMap());
  }

  /** Returns what belongs to the query that this thread plans, made at the first call; each plan has its own. */
  @SuppressWarnings("unchecked")
  static <T> T ofQuery(Supplier<T> made) {
    scala.Option<QueryPlanningTracker> query = QueryPlanningTracker.get();
    if (query.isEmpty()) {
      return made.get();
    }
    synchronized (QUERIES) {
      return (T) QUERIES.computeIfAbsent(query.get(), key -> made.get());
    }
  }

  /** Returns the Python that the driver's processes run. */
  static String python() {
    SparkConf conf = SparkEnv.get().conf();
    for (String name : new String[] {"spark.pyspark.driver.python", "spark.pyspark.python"}) {
      if (conf.contains(name)) {
        return conf.get(name);
      }
    }
    Map<String, String> environment = System.getenv();
    return environment.getOrDefault(
        "PYSPARK_DRIVER_PYTHON", environment.getOrDefault("PYSPARK_PYTHON", "python3"));
  }
}
