package io.txnlog.spark;

import static io.txnlog.spark.SparkVersion.linked;

import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.Writer;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;
import java.util.Base64;
import java.util.HashMap;
import java.util.Map;
import java.util.TreeMap;
import java.util.UUID;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;

/**
 * Asks a Python process about a log: a line of JSON for each question, one for each answer, in any order. The driver has
 * one process for all logs, and each executor another one.
 */
final class LogCalls {
  /** What to do about a Python that isn't the right one. */
  static final String SET_PYTHON =
      "Set PYSPARK_PYTHON, where Spark's driver is started, to the Python that has txn-source.";

  private static final ObjectMapper JSON = new ObjectMapper();
  private static final Map<String, Helper> HELPERS = new HashMap<>(); // by interpreter; null: the driver's own
  private static final int ANSWER_MINUTES_MAX = 10; // whoever waits for a service gives up long before

  private final String interpreter;
  private final Map<String, String> target;

  private LogCalls(String interpreter, Map<String, String> target) {
    this.interpreter = interpreter;
    this.target = target;
  }

  /** Returns what asks the driver's process about a log's path or endpoint; it is started with the first question. */
  static LogCalls of(Map<String, String> target) {
    return new LogCalls(null, target);
  }

  /** Returns what asks an executor's process, which runs the driver's Python interpreter. */
  static LogCalls on(String interpreter) {
    return new LogCalls(interpreter, Map.of());
  }

  /** Returns what the log was opened by. */
  Map<String, String> target() {
    return target;
  }

  /** Returns a value as JSON. */
  static String json(Object value) {
    try {
      return JSON.writeValueAsString(value);
    } catch (JsonProcessingException e) {
      throw new IllegalArgumentException(e);
    }
  }

  /** Returns the texts of an object, by their names; throws if it is something else, which would have none. */
  static Map<String, String> texts(JsonNode of) {
    if (!of.isObject()) {
      throw new IllegalArgumentException("not an object: " + of);
    }
    Map<String, String> all = new TreeMap<>();
    of.fieldNames().forEachRemaining(name -> all.put(name, of.get(name).asText()));
    return all;
  }

  /** Returns the bytes that a text stands for, in base64. */
  static byte[] bytes(JsonNode text) {
    return Base64.getDecoder().decode(text.asText());
  }

  /** Returns the numbers in a base64 text. */
  static long[] longs(JsonNode text) {
    ByteBuffer bytes = ByteBuffer.wrap(bytes(text)).order(ByteOrder.LITTLE_ENDIAN);
    long[] numbers = new long[bytes.remaining() / Long.BYTES];
    bytes.asLongBuffer().get(numbers);
    return numbers;
  }

  /**
   * Returns the answer to a call, or throws what the log says. If the process dies, another one is asked once more: by
   * the id it knows a change that was made, and answers as if it had made it.
   */
  JsonNode ask(String call, Map<String, ?> arguments) {
    String id = UUID.randomUUID().toString();
    String question = json(Map.of("id", id, "target", target, "call", call, "arguments", arguments));
    try {
      Helper first = running(null);
      try {
        return first.ask(id, question);
      } catch (IOException e) {
        return running(first).ask(id, question);
      }
    } catch (IOException e) {
      throw unavailable("The catalog's Python process, " + python() + " -m txn_source.spark.catalog, has"
          + " ended (" + e.getMessage() + "). See what it wrote to the log of Spark's driver. "
          + SET_PYTHON);
    } catch (TimeoutException e) {
      throw unavailable("The catalog's Python process didn't answer `" + call + "` within " + ANSWER_MINUTES_MAX
          + " minutes, and was ended. Try again.");
    }
  }

  /** Returns the process, and another one than that which is known to have ended. */
  private Helper running(Helper ended) {
    synchronized (HELPERS) {
      return HELPERS.compute(interpreter, (name, helper) -> {
        if (helper != null && helper != ended && helper.process.isAlive()) {
          return helper;
        }
        try {
          return new Helper(python());
        } catch (IOException e) {
          throw unavailable(python() + " can't be started (" + e.getMessage() + "). " + SET_PYTHON);
        }
      });
    }
  }

  private String python() {
    return interpreter != null ? interpreter : linked(() -> SparkInternals.python());
  }

  private static TxnLogException unavailable(String text) {
    return new TxnLogException("UNAVAILABLE", text);
  }

  /** A process that runs, and who waits for its answers. */
  private static final class Helper {
    final Process process;
    private final Writer questions;
    private final Map<String, CompletableFuture<JsonNode>> waiting = new ConcurrentHashMap<>();

    Helper(String python) throws IOException {
      process = new ProcessBuilder(python, "-m", "txn_source.spark.catalog")
          .redirectError(ProcessBuilder.Redirect.INHERIT).start();
      questions = process.outputWriter(StandardCharsets.UTF_8);
      Thread listener = new Thread(this::listen, "txnlog-answers");
      listener.setDaemon(true);
      listener.start();
    }

    /** Returns an answer, whoever else waits for one; throws IOException if the process ends first. */
    JsonNode ask(String id, String question) throws IOException, TimeoutException {
      CompletableFuture<JsonNode> answer = new CompletableFuture<>();
      waiting.put(id, answer);
      try {
        write(question + "\n");
        JsonNode said = answer.get(ANSWER_MINUTES_MAX, TimeUnit.MINUTES);
        if (said.has("error")) {
          throw new TxnLogException(said.at("/error/code").asText(), said.at("/error/message").asText());
        }
        return said.get("answer");
      } catch (ExecutionException e) {
        throw new IOException(e.getCause().getMessage());
      } catch (InterruptedException e) { // by which Spark knows a query that was stopped
        throw TxnLogException.<RuntimeException>undeclared(e);
      } catch (TimeoutException e) {
        process.destroyForcibly();
        throw e;
      } finally {
        waiting.remove(id);
      }
    }

    private synchronized void write(String line) throws IOException {
      questions.write(line);
      questions.flush();
    }

    private void listen() {
      IOException why = new IOException("it gave no answer");
      try (BufferedReader answers = process.inputReader(StandardCharsets.UTF_8)) {
        for (String line = answers.readLine(); line != null; line = answers.readLine()) {
          JsonNode said = JSON.readTree(line);
          CompletableFuture<JsonNode> asked = waiting.get(said.get("id").asText());
          if (asked != null) {
            asked.complete(said);
          }
        }
      } catch (IOException e) {
        why = e;
      }
      process.destroyForcibly().onExit().join(); // then who asks from now on can't write
      for (CompletableFuture<JsonNode> each : waiting.values()) {
        each.completeExceptionally(why);
      }
    }
  }
}
