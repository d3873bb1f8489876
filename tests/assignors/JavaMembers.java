// Kafka's own consumers in one group, told over standard input: "join NAME", "leave NAME". Tells over standard output
// "NAME + NANOS topic-partition,..." when partitions are assigned, "NAME - NANOS ..." once they have been let go, and
// "NAME left" when a consumer is closed. Nanoseconds are of the machine's monotonic clock.

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.time.Duration;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.stream.Collectors;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

public class JavaMembers {
    public static void main(String[] arguments) throws Exception {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", arguments[0]);
        settings.put("group.id", arguments[1]);
        settings.put("heartbeat.interval.ms", arguments[3]);
        settings.put("partition.assignment.strategy", "org.apache.kafka.clients.consumer.CooperativeStickyAssignor");
        Map<String, AtomicBoolean> leaving = new HashMap<>();
        Map<String, Thread> threads = new HashMap<>();
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] words = line.split(" ");
            if (words[0].equals("join")) {
                AtomicBoolean leave = new AtomicBoolean();
                leaving.put(words[1], leave);
                Thread thread = new Thread(() -> sit(words[1], settings, arguments[2], leave));
                threads.put(words[1], thread);
                thread.start();
            } else {
                leaving.get(words[1]).set(true);
            }
        }
        leaving.values().forEach(leave -> leave.set(true));
        for (Thread thread : threads.values()) thread.join();
    }

    static void sit(String name, Properties settings, String topic, AtomicBoolean leave) {
        Properties mine = new Properties();
        mine.putAll(settings);
        mine.put("client.id", name);
        try (KafkaConsumer<byte[], byte[]> consumer =
                 new KafkaConsumer<>(mine, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            consumer.subscribe(List.of(topic), new ConsumerRebalanceListener() {
                @Override
                public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
                    tell(name, "+", partitions);
                }

                @Override
                public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
                    tell(name, "-", partitions);
                }
            });
            while (!leave.get()) consumer.poll(Duration.ofMillis(50));
        } catch (RuntimeException error) {
            System.out.println(name + " failed " + error);
        }
        System.out.println(name + " left");
    }

    static synchronized void tell(String name, String what, Collection<TopicPartition> partitions) {
        String all = partitions.stream().map(TopicPartition::toString).collect(Collectors.joining(","));
        System.out.println(name + " " + what + " " + System.nanoTime() + " " + (all.isEmpty() ? "-" : all));
    }
}
