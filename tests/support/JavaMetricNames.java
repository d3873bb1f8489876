import java.util.Map;
import java.util.Properties;
import java.util.TreeSet;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.common.Metric;
import org.apache.kafka.common.MetricName;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/**
 * Prints "group/name" of every metric that a Java consumer has from its first moment on. No broker is needed. With an
 * argument, it is a share consumer.
 */
public class JavaMetricNames {
    public static void main(String[] arguments) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", "127.0.0.1:1");
        settings.put("group.id", "group");
        settings.put("enable.metrics.push", "false");
        TreeSet<String> names = new TreeSet<>();
        ByteArrayDeserializer bytes = new ByteArrayDeserializer();
        Map<MetricName, ? extends Metric> metrics =
                arguments.length == 0
                        ? new KafkaConsumer<>(settings, bytes, bytes).metrics()
                        : new KafkaShareConsumer<>(settings, bytes, bytes).metrics();
        for (MetricName name : metrics.keySet()) {
            names.add(name.group() + "/" + name.name());
        }
        names.forEach(System.out::println);
        System.out.flush();
        Runtime.getRuntime().halt(0); // a close would wait for a broker that is not there
    }
}
