package litelog.spark;

import com.fasterxml.jackson.databind.JsonNode;
import com.github.luben.zstd.Zstd;
import java.io.IOException;
import java.net.URI;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.zip.CRC32C;
import net.jpountz.lz4.LZ4Factory;
import net.jpountz.lz4.LZ4SafeDecompressor;

/**
 * A sealed segment whose footer Python has checked ({@code litelog/spark/jvm/opening.py}): where its bytes are, and
 * the frames that may hold wanted records. {@code metrics}: what Python has read and skipped of it. {@code constants}:
 * the columns that are the same in all records.
 */
record SealedObject(
    URI url, List<Group> groups, Wanted wanted, Map<String, Long> metrics, Map<String, JsonNode> constants) {
  private static final LZ4SafeDecompressor LZ4 = LZ4Factory.fastestInstance().safeDecompressor();
  private static final int LZ4_MAGIC = 0x184D2204;
  private static final int BEFORE_BLOCK = 19;
  private static final int AFTER_BLOCK = 8;

  /** Adjacent runs that one request reads, from {@code at} on. {@code body}: null if Python has not read them. */
  record Group(long at, int size, ByteBuffer body, List<Run> runs) {}

  /**
   * Frames that are decoded together. {@code at}: where they begin in the group. {@code offset}: where their content
   * begins in the log segment. {@code next}: the sequence after them. {@code whole}: whether sequences and timestamps
   * of all records are wanted.
   */
  record Run(int at, long offset, int length, long first, long next, int records, boolean whole, List<Frame> frames) {}

  /** Sizes and checksums of a frame, as the footer states them. {@code stored}: the CRC-32C of the frame's own bytes. */
  record Frame(int size, int length, long crc, long checksum, long stored) {}

  /** The wanted records, with inclusive bounds. {@code keys}: null for all, except that null is none of them. */
  record Wanted(long first, long last, long since, long until, boolean needsKey, Set<ByteBuffer> keys) {
    boolean holds(long sequence, long time) {
      return first <= sequence && sequence <= last && since <= time && time <= until;
    }

    /** {@code length}: below 0 for null. */
    boolean holdsKey(byte[] data, int start, int length) {
      return !needsKey || length >= 0 && (keys == null || keys.contains(ByteBuffer.wrap(data, start, length)));
    }
  }

  /** Opens a sealed segment. Throws IOException if Python finds it damaged or missing. */
  static SealedObject open(ReadPlan.Part part, String python) throws IOException {
    return ReadPlan.MAPPER.readValue(PythonWorker.ask(python, part.request("open"), part.pieces()), SealedObject.class);
  }

  /** Decodes a run from the bytes of its group, and checks it against the footer. Returns bytes of the log segment. */
  static byte[] decode(ByteBuffer body, Run run, byte[] reused) throws IOException {
    ByteBuffer data = ByteBuffer.wrap(reused.length >= run.length ? reused : new byte[run.length]);
    int at = run.at;
    int filled = 0;
    for (Frame frame : run.frames) {
      ByteBuffer stored = body.slice(at, frame.size).order(ByteOrder.LITTLE_ENDIAN);
      require(crc(stored.duplicate()) == frame.stored, "CRC-32C of a frame's bytes");
      require(Integer.toUnsignedLong(stored.getInt(frame.size - 4)) == frame.checksum, "content checksum of a frame");
      require(decompress(stored, frame, data, filled) == frame.length, "length of a frame");
      require(crc(data.slice(filled, frame.length)) == frame.crc, "CRC-32C of a frame");
      at += frame.size;
      filled += frame.length;
    }
    return data.array();
  }

  /**
   * Decompresses a frame of zstd, or of LZ4 with one block, as litelog writes them. Returns the length of its content.
   * Any other frame does not have the content whose CRC-32C the footer states, and Python reads it.
   */
  private static long decompress(ByteBuffer stored, Frame frame, ByteBuffer data, int filled) {
    if (stored.getInt(0) != LZ4_MAGIC) {
      byte[] copy = new byte[frame.size];
      stored.get(0, copy);
      return Zstd.decompressByteArray(data.array(), filled, frame.length, copy, 0, frame.size);
    }
    int size = frame.size - BEFORE_BLOCK - AFTER_BLOCK;
    boolean isCompressed = stored.getInt(BEFORE_BLOCK - 4) >= 0;
    if (isCompressed) {
      return LZ4.decompress(stored, BEFORE_BLOCK, size, data, filled, frame.length);
    }
    data.put(filled, stored, BEFORE_BLOCK, size);
    return size;
  }

  private static long crc(ByteBuffer bytes) {
    CRC32C crc = new CRC32C();
    crc.update(bytes);
    return crc.getValue();
  }

  /** Throws IOException if a check fails. Python then reads the bytes again, and decides. */
  static void require(boolean holds, String what) throws IOException {
    if (!holds) {
      throw new IOException(what + " is wrong");
    }
  }
}
