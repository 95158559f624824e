package io.txnlog.spark;

import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.BufferedWriter;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.TreeMap;

/** Asks a Python process about one log: a line of JSON for each question, one for each answer. */
final class LogCalls {
  private static final ObjectMapper JSON = new ObjectMapper();
  private static final Map<Map<String, String>, LogCalls> LOGS = new ConcurrentHashMap<>();

  private final Map<String, String> target;
  private Process process;
  private BufferedWriter questions;
  private BufferedReader answers;

  private LogCalls(Map<String, String> target) {
    this.target = target;
  }

  /** Returns the process for a log's path or endpoint, one for all sessions; it is started with the first question. */
  static LogCalls of(Map<String, String> target) {
    return LOGS.computeIfAbsent(target, LogCalls::new);
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

  /** Returns the texts of an object, by their names. */
  static Map<String, String> texts(JsonNode of) {
    Map<String, String> all = new TreeMap<>();
    of.fieldNames().forEachRemaining(name -> all.put(name, of.get(name).asText()));
    return all;
  }

  /** Returns the answer to a call, or throws what the log says. A process that has died is started once more. */
  synchronized JsonNode ask(String call, Map<String, ?> arguments) {
    boolean started = process == null || !process.isAlive();
    try {
      if (started) {
        start();
      }
      return said(JSON.writeValueAsString(Map.of("call", call, "arguments", arguments)));
    } catch (IOException e) {
      stop();
      if (!started) {
        return ask(call, arguments);
      }
      throw new TxnLogException("UNAVAILABLE", "[TXNLOG_UNAVAILABLE] The catalog's Python process, "
          + SparkInternals.python() + " -m txn_source.spark.catalog, has ended (" + e.getMessage()
          + "). See what it wrote to the log of Spark's driver. " + SparkInternals.SET_PYTHON);
    }
  }

  private void start() throws IOException {
    List<String> command = List.of(SparkInternals.python(), "-m", "txn_source.spark.catalog");
    ProcessBuilder builder = new ProcessBuilder(new ArrayList<>(command));
    builder.redirectError(ProcessBuilder.Redirect.INHERIT);
    try {
      process = builder.start();
    } catch (IOException e) {
      throw new TxnLogException("UNAVAILABLE", "[TXNLOG_UNAVAILABLE] " + command.get(0) + " can't be started ("
          + e.getMessage() + "). " + SparkInternals.SET_PYTHON);
    }
    questions = process.outputWriter(StandardCharsets.UTF_8);
    answers = process.inputReader(StandardCharsets.UTF_8);
    try {
      said(JSON.writeValueAsString(target));
    } catch (TxnLogException e) {
      stop(); // it has no log
      throw e;
    }
  }

  private JsonNode said(String question) throws IOException {
    questions.write(question);
    questions.newLine();
    questions.flush();
    String line = answers.readLine();
    if (line == null) {
      throw new IOException("it gave no answer");
    }
    JsonNode answer = JSON.readTree(line);
    if (answer.has("error")) {
      throw new TxnLogException(answer.at("/error/code").asText(), answer.at("/error/message").asText());
    }
    return answer.get("answer");
  }

  private void stop() {
    if (process != null) {
      process.destroy();
      process = null;
    }
  }
}
