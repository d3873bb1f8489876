// Apache Kafka's own record classes at the other end of a pipe; see records_jvm.py for who asks.
//
// 'W': int8 magic, int8 codec, int8 append time?, int64 base offset, int64 seed -> a batch that Kafka's builder wrote of
//      records that the seed chose.
// 'R': int32 size, bytes -> every record of every batch as MemoryRecords reads them, checksums ensured as a consumer
//      does, or the reason why not.
import java.io.BufferedInputStream;
import java.io.BufferedOutputStream;
import java.io.ByteArrayOutputStream;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.EOFException;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.Random;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.record.internal.CompressionType;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.record.internal.MemoryRecordsBuilder;
import org.apache.kafka.common.record.internal.MutableRecordBatch;
import org.apache.kafka.common.record.internal.Record;

public class RecordsOracle {
    public static void main(String[] arguments) throws IOException {
        DataInputStream in = new DataInputStream(new BufferedInputStream(System.in, 1 << 16));
        DataOutputStream out = new DataOutputStream(new BufferedOutputStream(System.out, 1 << 16));
        while (true) {
            byte what;
            try {
                what = in.readByte();
            } catch (EOFException end) {
                return;
            }
            byte[] answer = what == 'W' ? write(in) : read(in);
            out.writeInt(answer.length);
            out.write(answer);
            if (in.available() == 0) out.flush();
        }
    }

    static byte[] write(DataInputStream in) throws IOException {
        byte magic = in.readByte();
        CompressionType codec = CompressionType.forId(in.readByte());
        TimestampType type = in.readByte() != 0 ? TimestampType.LOG_APPEND_TIME : TimestampType.CREATE_TIME;
        if (magic == 0) type = TimestampType.NO_TIMESTAMP_TYPE;
        long offset = in.readLong();
        Random random = new Random(in.readLong());
        MemoryRecordsBuilder builder = MemoryRecords.builder(
            ByteBuffer.allocate(4096), magic, Compression.of(codec).build(), type, offset, 1_700_000_000_000L,
            random.nextBoolean() && magic == 2 ? random.nextInt(5) : -1L, (short) 0, 0);
        int count = 1 + random.nextInt(12);
        for (int i = 0; i < count; i++) {
            Header[] headers = new Header[magic == 2 ? Math.max(0, random.nextInt(6) - 3) : 0];
            for (int h = 0; h < headers.length; h++)
                headers[h] = new RecordHeader("h" + random.nextInt(30), bytes(random, 20));
            offset += random.nextInt(4) == 0 && magic == 2 ? 1 + random.nextInt(3) : 0;
            long timestamp = magic == 0 ? -1L : 1_700_000_000_000L + random.nextInt() / 1000;
            builder.appendWithOffset(offset++, timestamp, bytes(random, 40), bytes(random, 200), headers);
        }
        if (magic == 2 && random.nextInt(4) == 0) builder.overrideLastOffset(offset + random.nextInt(5));
        ByteBuffer buffer = builder.build().buffer();
        byte[] result = new byte[buffer.remaining()];
        buffer.get(result);
        return result;
    }

    static byte[] bytes(Random random, int most) {
        if (random.nextInt(5) == 0) return null;
        byte[] made = new byte[random.nextInt(most)];
        random.nextBytes(made);
        if (random.nextBoolean()) java.util.Arrays.fill(made, (byte) 'a');
        return made;
    }

    static byte[] read(DataInputStream in) throws IOException {
        byte[] data = new byte[in.readInt()];
        in.readFully(data);
        ByteArrayOutputStream bytes = new ByteArrayOutputStream();
        DataOutputStream out = new DataOutputStream(bytes);
        try {
            out.writeByte(0);
            long next = -1;
            for (MutableRecordBatch batch : MemoryRecords.readableRecords(ByteBuffer.wrap(data)).batches()) {
                batch.ensureValid();
                if (!batch.isControlBatch())
                    for (Record record : batch) {
                        record.ensureValid();
                        out.writeByte(1);
                        out.writeLong(record.offset());
                        out.writeLong(record.timestamp());
                        out.writeByte(
                            batch.magic() == 0 ? -1 : batch.timestampType() == TimestampType.LOG_APPEND_TIME ? 1 : 0);
                        put(out, record.key());
                        put(out, record.value());
                        out.writeInt(record.headers().length);
                        for (Header header : record.headers()) {
                            put(out, ByteBuffer.wrap(header.key().getBytes(StandardCharsets.UTF_8)));
                            put(out, header.value() == null ? null : ByteBuffer.wrap(header.value()));
                        }
                    }
                next = batch.nextOffset();
            }
            out.writeByte(0);
            out.writeLong(next);
        } catch (Throwable refused) {
            bytes.reset();
            out.writeByte(1);
            Throwable cause = refused;
            StringBuilder reason = new StringBuilder(refused.getClass().getSimpleName() + ": " + refused.getMessage());
            while (cause.getCause() != null && cause.getCause() != cause) {
                cause = cause.getCause();
                reason.append(" < ").append(cause.getClass().getSimpleName()).append(": ").append(cause.getMessage());
            }
            out.write(reason.toString().getBytes(StandardCharsets.UTF_8));
        }
        return bytes.toByteArray();
    }

    static void put(DataOutputStream out, ByteBuffer value) throws IOException {
        if (value == null) {
            out.writeInt(-1);
            return;
        }
        byte[] copy = new byte[value.remaining()];
        value.duplicate().get(copy);
        out.writeInt(copy.length);
        out.write(copy);
    }
}
