// Writes flights with Kafka's own Java producer, so that what the demo reads was written by somebody else.
//
//   FlightProducer create BOOTSTRAP TOPIC PARTITIONS
//   FlightProducer produce BOOTSTRAP TOPIC          lines on standard input, see below
//   FlightProducer delete BOOTSTRAP TOPIC
//
// A line is `timestamp TAB key TAB value TAB carrier TAB origin`, with \N for null; a line `@gzip` sends what follows
// through a producer with that codec. At the end each codec's count of acknowledged records is printed: `gzip 100000`.

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.atomic.AtomicReference;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.serialization.ByteArraySerializer;

public class FlightProducer {
    public static void main(String[] args) throws Exception {
        switch (args[0]) {
            case "create" -> create(args[1], args[2], Integer.parseInt(args[3]));
            case "produce" -> produce(args[1], args[2]);
            case "delete" -> delete(args[1], args[2]);
            default -> throw new IllegalArgumentException(args[0]);
        }
    }

    static Properties connect(String bootstrap) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", bootstrap);
        settings.put("default.api.timeout.ms", "10000");
        settings.put("request.timeout.ms", "10000");
        return settings;
    }

    static void create(String bootstrap, String topic, int partitions) throws Exception {
        try (Admin admin = Admin.create(connect(bootstrap))) {
            NewTopic wanted = new NewTopic(topic, Optional.of(partitions), Optional.empty());
            // The flights are of 2013: any retention by time would take them away while they are read.
            wanted.configs(Map.of("retention.ms", "-1", "cleanup.policy", "delete"));
            admin.createTopics(List.of(wanted)).all().get();
        }
    }

    static void delete(String bootstrap, String topic) throws Exception {
        try (Admin admin = Admin.create(connect(bootstrap))) {
            admin.deleteTopics(List.of(topic)).all().get();
        }
    }

    static void produce(String bootstrap, String topic) throws Exception {
        Map<String, KafkaProducer<byte[], byte[]>> producers = new LinkedHashMap<>();
        Map<String, AtomicLong> acknowledged = new LinkedHashMap<>();
        AtomicReference<Exception> failure = new AtomicReference<>();
        KafkaProducer<byte[], byte[]> producer = null;
        AtomicLong count = null;

        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8), 1 << 20);
        for (String line = lines.readLine(); line != null && failure.get() == null; line = lines.readLine()) {
            if (line.startsWith("@")) {
                String codec = line.substring(1);
                producer = producers.computeIfAbsent(codec, name -> open(bootstrap, name));
                count = acknowledged.computeIfAbsent(codec, name -> new AtomicLong());
                continue;
            }
            String[] cells = line.split("\t", -1);
            AtomicLong mine = count;
            producer.send(
                new ProducerRecord<>(topic, null, Long.parseLong(cells[0]), bytes(cells[1]), bytes(cells[2]), headers(cells)),
                (metadata, error) -> {
                    if (error == null) mine.incrementAndGet();
                    else failure.compareAndSet(null, error);
                });
        }
        for (KafkaProducer<byte[], byte[]> one : producers.values()) {
            one.flush();
            one.close();
        }
        if (failure.get() != null) throw failure.get();
        acknowledged.forEach((codec, records) -> System.out.println(codec + " " + records.get()));
    }

    static KafkaProducer<byte[], byte[]> open(String bootstrap, String codec) {
        Properties settings = connect(bootstrap);
        settings.put("compression.type", codec);
        settings.put("linger.ms", "20");
        settings.put("batch.size", "65536");
        return new KafkaProducer<>(settings, new ByteArraySerializer(), new ByteArraySerializer());
    }

    static byte[] bytes(String cell) {
        return cell.equals("\\N") ? null : cell.getBytes(StandardCharsets.UTF_8);
    }

    static List<Header> headers(String[] cells) {
        return List.of(new RecordHeader("carrier", bytes(cells[3])), new RecordHeader("origin", bytes(cells[4])));
    }
}
