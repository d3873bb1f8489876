import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.HexFormat;
import org.apache.kafka.clients.producer.internals.BuiltInPartitioner;

/** For each line "partitions hex-key": the partition that Kafka's own producer chooses. */
class Partitions {
    public static void main(String[] arguments) throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line; (line = lines.readLine()) != null; ) {
            int space = line.indexOf(' ');
            byte[] key = HexFormat.of().parseHex(line.substring(space + 1));
            System.out.println(BuiltInPartitioner.partitionForKey(key, Integer.parseInt(line.substring(0, space))));
        }
    }
}
