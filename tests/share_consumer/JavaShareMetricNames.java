import java.util.Map;
import java.util.Properties;
import java.util.TreeSet;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.common.MetricName;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/** Prints "group/name" of every metric that a Java share consumer has from its first moment on. No broker is needed. */
public class JavaShareMetricNames {
    public static void main(String[] arguments) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", "127.0.0.1:1");
        settings.put("group.id", "group");
        settings.put("enable.metrics.push", "false");
        TreeSet<String> names = new TreeSet<>();
        ByteArrayDeserializer bytes = new ByteArrayDeserializer();
        KafkaShareConsumer<byte[], byte[]> consumer = new KafkaShareConsumer<>(settings, bytes, bytes);
        for (MetricName name : consumer.metrics().keySet()) {
            names.add(name.group() + "/" + name.name());
        }
        names.forEach(System.out::println);
        System.out.flush();
        Runtime.getRuntime().halt(0); // a close would wait for a broker that is not there
    }
}
