import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.HexFormat;
import java.util.Properties;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Kafka's own producer, told by lines: "# topic partition codec" begins another producer, and
 * "timestamp key value name value name value ..." is a record, all in hex, with "-" for null and "." for no bytes.
 */
class JavaWriter {
    public static void main(String[] arguments) throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        KafkaProducer<byte[], byte[]> producer = null;
        String topic = "";
        int partition = 0;
        for (String line; (line = lines.readLine()) != null; ) {
            String[] words = line.split(" ");
            if (words[0].equals("#")) {
                if (producer != null) producer.close();
                Properties settings = new Properties();
                settings.put("bootstrap.servers", arguments[0]);
                settings.put("compression.type", words[3]);
                settings.put("linger.ms", "50");
                producer = new KafkaProducer<>(settings, new ByteArraySerializer(), new ByteArraySerializer());
                topic = words[1];
                partition = Integer.parseInt(words[2]);
                continue;
            }
            var record = new ProducerRecord<>(
                topic, partition, Long.parseLong(words[0]), bytes(words[1]), bytes(words[2]));
            for (int i = 3; i < words.length; i += 2) record.headers().add(new String(bytes(words[i])), bytes(words[i + 1]));
            producer.send(record);
        }
        if (producer != null) producer.close();
    }

    static byte[] bytes(String word) {
        return word.equals("-") ? null : word.equals(".") ? new byte[0] : HexFormat.of().parseHex(word);
    }
}
