package litelog.spark;

import com.github.luben.zstd.Zstd;
import java.io.IOException;
import java.net.URI;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.List;
import java.util.Map;
import java.util.zip.CRC32C;
import net.jpountz.lz4.LZ4Factory;
import net.jpountz.lz4.LZ4SafeDecompressor;

/**
 * A sealed segment whose footer Python has checked ({@code litelog/spark/jvm/opening.py}): where its bytes are, and
 * the frames that may hold wanted records. {@code metrics}: what Python has read and skipped of it.
 */
record SealedObject(URI url, List<Group> groups, Map<String, Long> metrics) {
  private static final LZ4SafeDecompressor LZ4 = LZ4Factory.fastestInstance().safeDecompressor();
  private static final int LZ4_MAGIC = 0x184D2204;
  /** Independent blocks; the sizes of the content; a checksum of the content. */
  private static final byte LZ4_FLAGS = 0x6C;
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

  /** Opens a sealed segment. Throws IOException if Python finds it damaged or missing. */
  static SealedObject open(ReadPlan.Part part, Bounds bounds, String python) throws IOException {
    byte[] opened = PythonWorker.ask(python, part.request("open", bounds));
    return ReadPlan.MAPPER.readValue(opened, SealedObject.class);
  }

  /** Decodes a run from the bytes of its group, and checks it against the footer. Returns bytes of the log segment. */
  static byte[] decode(ByteBuffer body, Run run, byte[] reused) throws IOException {
    ByteBuffer data = ByteBuffer.wrap(reused.length >= run.length ? reused : new byte[run.length]);
    int at = run.at;
    int filled = 0;
    for (Frame frame : run.frames) {
      ByteBuffer stored = body.slice(at, frame.size).order(ByteOrder.LITTLE_ENDIAN);
      require(crc(stored.duplicate()) == frame.stored, "CRC-32C of a frame's bytes");
      decompress(stored, frame, data, filled);
      require(crc(data.slice(filled, frame.length)) == frame.crc, "CRC-32C of a frame");
      at += frame.size;
      filled += frame.length;
    }
    return data.array();
  }

  /** Decompresses a frame of zstd, or of LZ4 with one block, as litelog writes them. Python reads others. */
  private static void decompress(ByteBuffer stored, Frame frame, ByteBuffer data, int filled) throws IOException {
    require(Integer.toUnsignedLong(stored.getInt(frame.size - 4)) == frame.checksum, "content checksum of a frame");
    if (stored.getInt(0) != LZ4_MAGIC) {
      byte[] copy = new byte[frame.size];
      stored.get(0, copy);
      long length = Zstd.decompressByteArray(data.array(), filled, frame.length, copy, 0, frame.size);
      require(length == frame.length, "zstd frame");
      return;
    }
    require(stored.get(4) == LZ4_FLAGS && stored.getLong(6) == frame.length, "LZ4 frame");
    int word = stored.getInt(BEFORE_BLOCK - 4);
    int size = frame.size - BEFORE_BLOCK - AFTER_BLOCK;
    require((word & Integer.MAX_VALUE) == size && stored.getInt(frame.size - AFTER_BLOCK) == 0, "block of an LZ4 frame");
    if (word >= 0) {
      size = LZ4.decompress(stored, BEFORE_BLOCK, size, data, filled, frame.length);
    } else if (size == frame.length) {
      data.put(filled, stored, BEFORE_BLOCK, size);
    }
    require(size == frame.length, "content of an LZ4 frame");
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
