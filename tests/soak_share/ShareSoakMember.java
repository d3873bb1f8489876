// Kafka's own share consumer as a member of a soak's group: NAME BOOTSTRAP GROUP TOPIC HISTORY SEED PAUSE_S, and as its
// judge: judge BOOTSTRAP GROUP. SIGTERM requests a leave. Writes the lines that tests/soak_share/history.py lists;
// nanoseconds are of the machine's monotonic clock.

import java.io.FileOutputStream;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import java.util.Random;
import java.util.TreeMap;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.ListShareGroupOffsetsSpec;
import org.apache.kafka.clients.admin.SharePartitionOffsetInfo;
import org.apache.kafka.clients.consumer.AcknowledgeType;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicIdPartition;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.WakeupException;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

public class ShareSoakMember {
    static final AcknowledgeType[] TYPES = {AcknowledgeType.ACCEPT, AcknowledgeType.RELEASE, AcknowledgeType.REJECT};
    static volatile boolean leaving;

    public static void main(String[] arguments) throws Exception {
        if (arguments[0].equals("judge")) {
            judge(arguments[1], arguments[2]);
            return;
        }
        Properties settings = new Properties();
        settings.put("bootstrap.servers", arguments[1]);
        settings.put("group.id", arguments[2]);
        settings.put("client.id", arguments[0]);
        settings.put("share.acknowledgement.mode", "explicit");
        settings.put("max.poll.records", "200");
        try (FileOutputStream history = new FileOutputStream(arguments[4], true);
             KafkaShareConsumer<byte[], byte[]> consumer =
                 new KafkaShareConsumer<>(settings, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            Thread main = Thread.currentThread();
            Runtime.getRuntime().addShutdownHook(new Thread(() -> {
                leaving = true;
                consumer.wakeup();
                try {
                    main.join(15_000);
                } catch (InterruptedException ignored) {
                }
            }));
            consumer.subscribe(List.of(arguments[3]));
            Random draw = new Random(Long.parseLong(arguments[5]));
            while (!leaving) {
                try {
                    turn(consumer, history, draw);
                    Thread.sleep((long) (draw.nextDouble() * 1000 * Double.parseDouble(arguments[6])));
                } catch (WakeupException leave) {
                    continue;
                }
            }
        }
    }

    static void turn(KafkaShareConsumer<byte[], byte[]> consumer, FileOutputStream history, Random draw) throws Exception {
        ConsumerRecords<byte[], byte[]> records = consumer.poll(Duration.ofSeconds(1));
        if (records.isEmpty()) {
            return;
        }
        StringBuilder lines = new StringBuilder();
        Map<Integer, StringBuilder> typed = new TreeMap<>();
        long now = System.nanoTime();
        for (TopicPartition partition : records.partitions()) {
            Map<Integer, StringBuilder> delivered = new HashMap<>();
            for (ConsumerRecord<byte[], byte[]> record : records.records(partition)) {
                delivered.computeIfAbsent((int) record.deliveryCount().orElse((short) 0), count -> new StringBuilder())
                    .append(' ').append(record.offset());
                int chance = draw.nextInt(100);
                AcknowledgeType type = TYPES[chance < 80 ? 0 : chance < 92 ? 1 : 2];
                consumer.acknowledge(record, type);
                typed.computeIfAbsent(partition.partition(), number -> new StringBuilder())
                    .append(' ').append(record.offset()).append(':').append(type.id);
            }
            delivered.forEach((count, offsets) ->
                lines.append("D ").append(now).append(' ').append(partition.partition()).append(' ').append(count)
                    .append(offsets).append('\n'));
        }
        typed.forEach((partition, acks) ->
            lines.append("T ").append(now).append(' ').append(partition).append(acks).append('\n'));
        history.write(lines.toString().getBytes(StandardCharsets.UTF_8));
        Map<TopicIdPartition, Optional<KafkaException>> outcomes = consumer.commitSync(Duration.ofSeconds(30));
        StringBuilder settled = new StringBuilder();
        outcomes.forEach((place, error) -> {
            if (error.isEmpty()) {
                settled.append("S ").append(System.nanoTime()).append(' ').append(place.partition())
                    .append(typed.getOrDefault(place.partition(), new StringBuilder())).append('\n');
            }
        });
        history.write(settled.toString().getBytes(StandardCharsets.UTF_8));
    }

    static void judge(String bootstrap, String group) throws Exception {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", bootstrap);
        try (Admin admin = Admin.create(settings)) {
            Map<TopicPartition, SharePartitionOffsetInfo> found = admin
                .listShareGroupOffsets(Map.of(group, new ListShareGroupOffsetsSpec()))
                .partitionsToOffsetInfo(group).get();
            found.forEach((partition, info) ->
                System.out.println(partition.partition() + " " + info.startOffset() + " " + info.lag().orElse(-1L)));
        }
    }
}
