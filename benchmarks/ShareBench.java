// Kafka's own share consumer for `python -m benchmarks share`: BOOTSTRAP GROUP TOPIC COUNT MAX_POLL_RECORDS. Prints
// records, seconds and CPU seconds of the process, both from the first records on.

import java.lang.management.ManagementFactory;
import java.time.Duration;
import java.util.List;
import java.util.Properties;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

public class ShareBench {
    public static void main(String[] arguments) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", arguments[0]);
        settings.put("group.id", arguments[1]);
        settings.put("max.poll.records", arguments[4]);
        long count = Long.parseLong(arguments[3]), read = 0, bytes = 0, began = 0, cpu = 0;
        ByteArrayDeserializer as = new ByteArrayDeserializer();
        try (KafkaShareConsumer<byte[], byte[]> consumer = new KafkaShareConsumer<>(settings, as, as)) {
            consumer.subscribe(List.of(arguments[2]));
            while (read < count) {
                ConsumerRecords<byte[], byte[]> records = consumer.poll(Duration.ofSeconds(1));
                if (began == 0 && !records.isEmpty()) {
                    began = System.nanoTime();
                    cpu = used();
                    continue; // the first records begin the measurement
                }
                for (ConsumerRecord<byte[], byte[]> record : records) {
                    read++;
                    bytes += record.value().length;
                }
            }
            System.out.println(read + " " + (System.nanoTime() - began) / 1e9 + " " + (used() - cpu) / 1e9);
        }
        if (bytes < read) {
            throw new IllegalStateException("values are missing");
        }
    }

    static long used() {
        return ((com.sun.management.OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean())
            .getProcessCpuTime();
    }
}
