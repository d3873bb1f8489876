// Writes flights with Kafka's own Java producer.
//
//   FlightProducer BOOTSTRAP TOPIC          lines on standard input
//
// A line is `codec TAB timestamp TAB key TAB value TAB carrier TAB origin`, with \N for null. Each codec has a producer.
// At the end each codec's count of acknowledged records is printed: `gzip 100000`.

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.atomic.AtomicReference;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.serialization.ByteArraySerializer;

public class FlightProducer {
    public static void main(String[] args) throws Exception {
        Map<String, KafkaProducer<byte[], byte[]>> producers = new LinkedHashMap<>();
        Map<String, AtomicLong> acknowledged = new LinkedHashMap<>();
        AtomicReference<Exception> failure = new AtomicReference<>();
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8), 1 << 20);
        for (String line = lines.readLine(); line != null && failure.get() == null; line = lines.readLine()) {
            String[] cells = line.split("\t", -1);
            AtomicLong count = acknowledged.computeIfAbsent(cells[0], codec -> new AtomicLong());
            List<Header> headers =
                List.of(new RecordHeader("carrier", bytes(cells[4])), new RecordHeader("origin", bytes(cells[5])));
            producers.computeIfAbsent(cells[0], codec -> open(args[0], codec)).send(
                new ProducerRecord<>(args[1], null, Long.parseLong(cells[1]), bytes(cells[2]), bytes(cells[3]), headers),
                (metadata, error) -> {
                    if (error == null) count.incrementAndGet();
                    else failure.compareAndSet(null, error);
                });
        }
        producers.values().forEach(KafkaProducer::close);
        if (failure.get() != null) throw failure.get();
        acknowledged.forEach((codec, records) -> System.out.println(codec + " " + records.get()));
    }

    static KafkaProducer<byte[], byte[]> open(String bootstrap, String codec) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", bootstrap);
        settings.put("request.timeout.ms", "10000");
        settings.put("compression.type", codec);
        settings.put("linger.ms", "20");
        settings.put("batch.size", "65536");
        return new KafkaProducer<>(settings, new ByteArraySerializer(), new ByteArraySerializer());
    }

    static byte[] bytes(String cell) {
        return cell.equals("\\N") ? null : cell.getBytes(StandardCharsets.UTF_8);
    }
}
