// Kafka's own consumer as a member of a soak's group: NAME BOOTSTRAP GROUP TOPIC STRATEGY HISTORY SESSION_MS HEARTBEAT_MS
// REBALANCE_MS [PROTOCOL]. Under PROTOCOL "consumer" (KIP-848) STRATEGY is the coordinator's assignor. SIGTERM asks it to
// leave. Writes what tests/soak/history.py lists; nanoseconds are of the machine's monotonic clock.

import java.io.FileOutputStream;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.stream.Collectors;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

public class SoakMember {
    static String name;
    static FileOutputStream history;
    static volatile boolean leaving;
    static int commits;
    static final Map<Integer, Long> pending = new HashMap<>();

    public static void main(String[] arguments) throws Exception {
        name = arguments[0];
        String topic = arguments[3];
        history = new FileOutputStream(arguments[5], true);
        Map<String, String> strategies = Map.of(
            "range", "RangeAssignor", "roundrobin", "RoundRobinAssignor", "cooperative-sticky", "CooperativeStickyAssignor");
        Properties settings = new Properties();
        settings.put("bootstrap.servers", arguments[1]);
        settings.put("group.id", arguments[2]);
        settings.put("client.id", name);
        if (arguments.length > 9 && arguments[9].equals("consumer")) {
            settings.put("group.protocol", "consumer");
            settings.put("group.remote.assignor", arguments[4]);
        } else {
            settings.put("partition.assignment.strategy",
                "org.apache.kafka.clients.consumer." + strategies.get(arguments[4]));
            settings.put("session.timeout.ms", arguments[6]);
            settings.put("heartbeat.interval.ms", arguments[7]);
        }
        settings.put("auto.offset.reset", "earliest");
        settings.put("enable.auto.commit", "false");
        settings.put("max.poll.interval.ms", arguments[8]);
        Thread main = Thread.currentThread();
        Runtime.getRuntime().addShutdownHook(new Thread(() -> {
            leaving = true;
            try {
                main.join(15_000);
            } catch (InterruptedException ignored) {
            }
        }));
        try {
            sit(settings, topic);
            tell("left", "\"healthy\": true, \"reason\": \"\"");
        } catch (Exception error) {
            tell("failed", "\"error\": \"" + error.toString().replace('"', '\'').replace('\n', ' ') + "\"");
        }
    }

    static void sit(Properties settings, String topic) throws Exception {
        try (KafkaConsumer<byte[], byte[]> consumer =
                 new KafkaConsumer<>(settings, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            consumer.subscribe(List.of(topic), new ConsumerRebalanceListener() {
                @Override
                public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
                    TreeSet<Integer> all = numbers(consumer.assignment());
                    all.addAll(numbers(partitions));
                    tell("assigned", "\"partitions\": " + numbers(partitions) + ", \"assignment\": " + all
                        + ", \"generation\": " + consumer.groupMetadata().generationId());
                }

                @Override
                public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
                    pending.keySet().removeAll(numbers(partitions));
                    tell("revoked", "\"partitions\": " + numbers(partitions));
                }

                @Override
                public void onPartitionsLost(Collection<TopicPartition> partitions) {
                    pending.keySet().removeAll(numbers(partitions));
                    tell("lost", "\"partitions\": " + numbers(partitions));
                }
            });
            long due = 0;
            ProcessHandle parent = ProcessHandle.current().parent().orElseThrow();
            while (!leaving && parent.isAlive()) {
                long began = System.nanoTime();
                Map<Integer, long[]> slices = new TreeMap<>();
                for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(100))) {
                    slices.computeIfAbsent(record.partition(), number -> new long[] {record.offset(), 0})[1] =
                        record.offset() + 1;
                }
                if (!slices.isEmpty()) {
                    tell("delivered", "\"began\": " + began + ", \"slices\": [" + slices.entrySet().stream()
                        .map(one -> "[" + one.getKey() + ", " + one.getValue()[0] + ", " + one.getValue()[1] + "]")
                        .collect(Collectors.joining(", ")) + "]");
                    slices.forEach((number, slice) -> pending.put(number, slice[1]));
                }
                if (!pending.isEmpty() && System.nanoTime() > due) {
                    due = System.nanoTime() + 300_000_000L;
                    commit(consumer, topic);
                }
            }
            tell("closing", "\"reason\": \"asked\"");
        }
    }

    static void commit(KafkaConsumer<byte[], byte[]> consumer, String topic) {
        Map<TopicPartition, OffsetAndMetadata> offsets = new HashMap<>();
        pending.forEach((number, offset) -> offsets.put(new TopicPartition(topic, number), new OffsetAndMetadata(offset)));
        String told = pending.entrySet().stream().map(one -> "\"" + one.getKey() + "\": " + one.getValue())
            .collect(Collectors.joining(", "));
        Map<Integer, Long> sent = new HashMap<>(pending);
        pending.clear();
        commits += 1;
        tell("committing", "\"number\": " + commits + ", \"offsets\": {" + told + "}");
        String outcome = "ok";
        try {
            consumer.commitSync(offsets);
        } catch (RuntimeException error) {
            outcome = error.getClass().getSimpleName();
            sent.keySet().retainAll(numbers(consumer.assignment()));
            sent.forEach(pending::putIfAbsent);
        }
        tell("commit", "\"number\": " + commits + ", \"outcome\": \"" + outcome + "\"");
    }

    static TreeSet<Integer> numbers(Collection<TopicPartition> partitions) {
        return partitions.stream().map(TopicPartition::partition).collect(Collectors.toCollection(TreeSet::new));
    }

    static synchronized void tell(String what, String facts) {
        String line = "{\"at\": " + System.nanoTime() + ", \"who\": \"" + name + "\", \"what\": \"" + what + "\", "
            + facts + "}\n";
        try {
            history.write(line.getBytes(StandardCharsets.UTF_8));
        } catch (java.io.IOException error) {
            throw new java.io.UncheckedIOException(error);
        }
    }
}
