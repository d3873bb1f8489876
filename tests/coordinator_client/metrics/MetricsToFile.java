import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import org.apache.kafka.common.metrics.KafkaMetric;
import org.apache.kafka.common.metrics.MetricsReporter;
import org.apache.kafka.server.authorizer.AuthorizableRequestContext;
import org.apache.kafka.server.telemetry.ClientTelemetry;
import org.apache.kafka.server.telemetry.ClientTelemetryPayload;
import org.apache.kafka.server.telemetry.ClientTelemetryReceiver;

/** A broker's plugin that takes clients' metrics: a line per push, "client instance terminating hex", in a file. */
public class MetricsToFile implements MetricsReporter, ClientTelemetry, ClientTelemetryReceiver {
    @Override public void init(List<KafkaMetric> metrics) { }
    @Override public void metricChange(KafkaMetric metric) { }
    @Override public void metricRemoval(KafkaMetric metric) { }
    @Override public void close() { }
    @Override public void configure(Map<String, ?> configs) { }
    @Override public ClientTelemetryReceiver clientReceiver() { return this; }

    @Override
    public synchronized void exportMetrics(AuthorizableRequestContext context, ClientTelemetryPayload payload) {
        ByteBuffer data = payload.data().duplicate();
        byte[] bytes = new byte[data.remaining()];
        data.get(bytes);
        String line = context.clientId() + " " + payload.clientInstanceId() + " " + payload.isTerminating() + " "
            + HexFormat.of().formatHex(bytes) + "\n";
        try {
            Files.writeString(Path.of(System.getProperty("kohort.metrics")), line, StandardOpenOption.CREATE,
                StandardOpenOption.APPEND);
        } catch (IOException problem) {
            throw new IllegalStateException(problem);
        }
    }
}
