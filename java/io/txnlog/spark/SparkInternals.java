package io.txnlog.spark;

import java.io.Serializable;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.WeakHashMap;
import java.util.concurrent.ConcurrentHashMap;
import java.util.function.Supplier;
import org.apache.arrow.memory.BufferAllocator;
import org.apache.spark.JobArtifactSet$;
import org.apache.spark.JobArtifactState;
import org.apache.spark.QueryContext;
import org.apache.spark.TaskContext;
import org.apache.spark.api.python.ChainedPythonFunctions;
import org.apache.spark.api.python.PythonEvalType$;
import org.apache.spark.api.python.PythonFunction;
import org.apache.spark.api.python.PythonUtils$;
import org.apache.spark.api.python.SimplePythonFunction;
import org.apache.spark.sql.AnalysisException;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.QueryPlanningTracker;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.connector.catalog.SupportsRead;
import org.apache.spark.sql.connector.catalog.SupportsWrite;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.connector.expressions.Transform;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;
import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.connector.write.LogicalWriteInfo;
import org.apache.spark.sql.connector.write.WriteBuilder;
import org.apache.spark.paths.SparkPath$;
import org.apache.spark.sql.execution.datasources.FilePartition;
import org.apache.spark.sql.execution.datasources.PartitionedFile;
import org.apache.spark.sql.execution.datasources.parquet.ParquetFileFormat;
import org.apache.spark.sql.execution.datasources.v2.parquet.ParquetScanBuilder;
import org.apache.spark.sql.execution.datasources.v2.parquet.ParquetTable;
import org.apache.spark.sql.execution.datasources.v2.python.PythonCustomMetric$;
import org.apache.spark.sql.execution.datasources.v2.python.PythonDataSourceV2;
import org.apache.spark.sql.execution.python.ArrowPythonRunner;
import org.apache.spark.sql.execution.vectorized.ConstantColumnVector;
import org.apache.spark.sql.internal.SQLConf;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.ArrowUtils;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;
import org.apache.spark.sql.vectorized.ColumnVector;
import org.apache.spark.sql.vectorized.ColumnarBatch;
import org.apache.spark.unsafe.types.UTF8String;
import scala.Option;
import scala.Tuple2;
import scala.collection.immutable.Map$;
import scala.jdk.javaapi.CollectionConverters;

/**
 * All that is used of Spark and isn't public: what can break with its next release is in this file. It is called by way
 * of {@link SparkVersion#linked}.
 */
final class SparkInternals {
  private static final Map<QueryPlanningTracker, Object> QUERIES = new WeakHashMap<>();

  private SparkInternals() {}

  /** Returns what Spark takes for a missing table and shows: of NoSuchTableException it shows no near names. */
  static Exception missing(String message) {
    return new AnalysisException(message, Option.empty(), Option.empty(), Option.empty(),
        Option.apply("TABLE_OR_VIEW_NOT_FOUND"), Map$.MODULE$.empty(), new QueryContext[0]);
  }

  /** Returns the Python source's scan of some columns. */
  static Scan pythonScan(StructType columns, Map<String, String> options) {
    CaseInsensitiveStringMap given = new CaseInsensitiveStringMap(options);
    return ((SupportsRead) pythonTable(columns, given)).newScanBuilder(given).build();
  }

  /** Returns the Python source's write to a table that options name. */
  static WriteBuilder pythonWrite(StructType schema, CaseInsensitiveStringMap options, LogicalWriteInfo info) {
    return ((SupportsWrite) pythonTable(schema, options)).newWriteBuilder(info);
  }

  /** Returns the Python source's table. It asks Spark's list of Python sources, as the format's name means this jar. */
  private static Table pythonTable(StructType schema, CaseInsensitiveStringMap options) {
    PythonDataSourceV2 source = new PythonDataSourceV2();
    source.setShortName("txnlog");
    try {
      source.source();
    } catch (Exception e) {
      if (e instanceof AnalysisException) { // which Scala throws without declaring it
        throw new TxnLogException("UNAVAILABLE", "Spark's Python, " + python() + ", doesn't find txn-source. "
            + LogCalls.SET_PYTHON);
      }
      throw e;
    }
    return source.getTable(schema, new Transform[0], options.asCaseSensitiveMap());
  }

  /** Returns a reader factory for columns of Parquet files; the options override the session's settings. */
  static PartitionReaderFactory parquet(Map<String, String> options, StructType columns) {
    CaseInsensitiveStringMap given = new CaseInsensitiveStringMap(options);
    ParquetScanBuilder builder = new ParquetTable("txnlog", SparkSession.active(), given,
        CollectionConverters.asScala(List.<String>of()).toSeq(), Option.apply(columns), ParquetFileFormat.class)
        .newScanBuilder(given);
    builder.pruneColumns(columns);
    return builder.build().toBatch().createReaderFactory();
  }

  /** Returns a task of the Parquet reader: row groups whose middle lies in the byte range. */
  static InputPartition filePartition(ObjectRun run) {
    return new FilePartition(0, new PartitionedFile[] {new PartitionedFile(row(), SparkPath$.MODULE$
        .fromPathString("file://" + run.path()), run.start(), run.end() - run.start(), new String[0], 0, run.size(),
        Map$.MODULE$.empty())});
  }

  /**
   * A Python function that tasks run over Arrow batches, and the settings of the session that plans them.
   *
   * @param large as {@code spark.sql.execution.arrow.useLargeVarTypes}.
   * @param artifacts by which Spark Connect finds what a client added.
   */
  record PythonRun(PythonFunction function, String timeZone, boolean large,
      scala.collection.immutable.Map<String, String> settings, Option<String> artifacts) implements Serializable {}

  /** Returns how tasks run a pickled pair of a Python function and its type; called where Spark plans. */
  static PythonRun pythonRun(String pickled) {
    SQLConf conf = SQLConf.get();
    SimplePythonFunction function = PythonFunctions.of(pickled);
    return new PythonRun(function, conf.sessionLocalTimeZone(), conf.arrowUseLargeVarTypes(),
        ArrowPythonRunner.getPythonRunnerConfMap(conf),
        JobArtifactSet$.MODULE$.getCurrentJobArtifactState().map(JobArtifactState::uuid));
  }

  /** Python functions by what they are pickled as: making one starts a Python, to ask for its version. */
  private static final class PythonFunctions {
    private static final Map<List<String>, SimplePythonFunction> MADE = new ConcurrentHashMap<>();

    static SimplePythonFunction of(String pickled) {
      return MADE.computeIfAbsent(List.of(python(), pickled), key ->
          PythonUtils$.MODULE$.createPythonFunction(pickled.getBytes(StandardCharsets.US_ASCII)));
    }
  }

  /** Returns what a Python function gives for a row, in the task that runs; a batch is valid until the next. */
  static Iterator<ColumnarBatch> batches(PythonRun run, byte[] task, int first, int last, long begin, long done) {
    StructType inside = new StructType().add("task", DataTypes.BinaryType).add("first", DataTypes.IntegerType)
        .add("last", DataTypes.IntegerType).add("begin", DataTypes.LongType).add("done", DataTypes.LongType);
    ArrowPythonRunner runner = new ArrowPythonRunner(
        seq(new Tuple2<>(new ChainedPythonFunctions(seq(run.function())), (Object) Long.valueOf(-1))),
        PythonEvalType$.MODULE$.SQL_MAP_ARROW_ITER_UDF(), new int[][] {{0}}, new StructType().add("row", inside),
        run.timeZone(), run.large(), run.settings(), PythonCustomMetric$.MODULE$.pythonMetrics(), run.artifacts(),
        Option.empty());
    Iterator<InternalRow> rows = List.of(row(row(task, first, last, begin, done))).iterator();
    TaskContext context = TaskContext.get();
    return CollectionConverters.asJava(runner.compute(
        CollectionConverters.asScala(List.of(CollectionConverters.asScala(rows)).iterator()),
        context.partitionId(), context));
  }

  private static <T> scala.collection.immutable.Seq<T> seq(T only) {
    return CollectionConverters.asScala(List.of(only)).toSeq();
  }

  /** Returns a column that has one value in each row: a number, a text, or null. */
  static ColumnVector constant(int rows, DataType type, Object value) {
    ConstantColumnVector column = new ConstantColumnVector(rows, type);
    if (value == null) {
      column.setNull();
    } else if (value instanceof Integer number) {
      column.setInt(number);
    } else if (value instanceof Long number) {
      column.setLong(number);
    } else {
      column.setUtf8String(UTF8String.fromString((String) value));
    }
    return column;
  }

  private static InternalRow row(Object... values) {
    return new GenericInternalRow(values);
  }

  /** True if Spark has killed or interrupted the running task. */
  static boolean isToEnd() {
    TaskContext task = TaskContext.get();
    return Thread.currentThread().isInterrupted() || (task != null && task.isInterrupted());
  }

  /** Throws Spark's exception for killed tasks if the running task was killed. */
  static boolean endIfKilled() {
    TaskContext.get().killTaskIfInterrupted();
    return false;
  }

  /** Returns the number of tasks that the cluster runs at once, as far as the session knows. */
  static int cores() {
    return SparkSession.active().sparkContext().defaultParallelism();
  }

  /** Returns memory for Arrow's columns, a part of Spark's. */
  static BufferAllocator allocator() {
    return ArrowUtils.rootAllocator().newChildAllocator("txnlog", 0, Long.MAX_VALUE);
  }

  /** Returns what belongs to the query that this thread plans, made at the first call; each plan has its own. */
  @SuppressWarnings("unchecked")
  static <T> T ofQuery(Supplier<T> made) {
    Option<QueryPlanningTracker> query = QueryPlanningTracker.get();
    if (query.isEmpty()) {
      return made.get();
    }
    synchronized (QUERIES) {
      return (T) QUERIES.computeIfAbsent(query.get(), key -> made.get());
    }
  }

  /** Returns the Python that plans for Spark's Python sources. */
  static String python() {
    return PythonUtils$.MODULE$.defaultPythonExec();
  }
}
