package io.txnlog.spark;

import com.fasterxml.jackson.databind.JsonNode;
import java.io.Serializable;

/**
 * Neighbouring row groups of an object, all of whose rows are read.
 *
 * @param start their first byte, inclusive.
 * @param end their last byte, exclusive.
 * @param size the bytes of the file.
 * @param checks offset, length and CRC-32C of each run of bytes that is to be checked.
 */
record ObjectRun(String topic, String path, long start, long end, long size, long rows, long[] checks)
    implements Serializable {
  /** Returns a run as the log's process says it. */
  static ObjectRun of(JsonNode step) {
    return new ObjectRun(step.get("topic").asText(), step.get("object").asText(), step.get("start").asLong(),
        step.get("end").asLong(), step.get("size").asLong(), step.get("rows").asLong(),
        LogCalls.longs(step.get("checks")));
  }
}
