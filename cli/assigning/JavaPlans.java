// What Kafka's own assignors make of a group: reads groups from standard input, writes plans to standard output.
//
// One line a statement, fields separated by blanks, names in hexadecimal, "-" for nothing:
//   T topic replica-racks...          one field for each partition: racks joined by commas, "-" for none known
//   M member instance rack generation topics owned user-data
//                                     topics joined by commas; owned as topic:partition joined by commas
//   A assignor...                     plan with each; "target" is cooperative-sticky before anything is withheld
// Answers, for each assignor: "P assignor", one line "member topic:partition,..." a member, and "." (or "E message").
// After the last answer of a group the next group begins.

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.stream.Collectors;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.Assignment;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.GroupSubscription;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.Subscription;
import org.apache.kafka.clients.consumer.CooperativeStickyAssignor;
import org.apache.kafka.clients.consumer.RangeAssignor;
import org.apache.kafka.clients.consumer.RoundRobinAssignor;
import org.apache.kafka.clients.consumer.StickyAssignor;
import org.apache.kafka.clients.consumer.internals.AbstractStickyAssignor;
import org.apache.kafka.common.Cluster;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.PartitionInfo;
import org.apache.kafka.common.TopicPartition;

public class JavaPlans {
    static final HexFormat HEX = HexFormat.of();

    /** Cooperative-sticky's plan before it withholds what is on the move. */
    static class Target extends AbstractStickyAssignor {
        static class Reader extends CooperativeStickyAssignor {
            AbstractStickyAssignor.MemberData read(Subscription subscription) {
                return memberData(subscription);
            }
        }

        @Override
        public String name() {
            return "target";
        }

        @Override
        protected MemberData memberData(Subscription subscription) {
            return new Reader().read(subscription);
        }
    }

    static ConsumerPartitionAssignor named(String name) {
        switch (name) {
            case "range": return new RangeAssignor();
            case "roundrobin": return new RoundRobinAssignor();
            case "sticky": return new StickyAssignor();
            case "cooperative-sticky": return new CooperativeStickyAssignor();
            case "target": return new Target();
            default: throw new IllegalArgumentException("no assignor " + name);
        }
    }

    public static void main(String[] arguments) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.US_ASCII), 1 << 20);
        PrintStream out = new PrintStream(System.out, false, StandardCharsets.US_ASCII);
        Group group = new Group();
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] fields = line.split(" ");
            switch (fields[0]) {
                case "T": group.addTopic(fields); break;
                case "M": group.addMember(fields); break;
                case "A":
                    for (String name : Arrays.asList(fields).subList(1, fields.length)) group.plan(name, out);
                    out.flush();
                    group = new Group();
                    break;
                default: throw new IllegalArgumentException(line);
            }
        }
    }

    static class Group {
        final Map<String, Node> nodeOfRack = new HashMap<>();
        final List<PartitionInfo> partitions = new ArrayList<>();
        final Map<String, Subscription> members = new HashMap<>();

        Node node(String rack) {
            return nodeOfRack.computeIfAbsent(rack, r -> new Node(nodeOfRack.size(), "host", 9092, text(r)));
        }

        void addTopic(String[] fields) {
            for (int p = 0; p < fields.length - 2; p++) {
                String racks = fields[p + 2];
                Node[] replicas = racks.equals("-") ? new Node[0]
                    : Arrays.stream(racks.split(",")).map(this::node).toArray(Node[]::new);
                Node leader = replicas.length == 0 ? null : replicas[0];
                partitions.add(new PartitionInfo(text(fields[1]), p, leader, replicas, replicas));
            }
        }

        void addMember(String[] fields) {
            List<String> topics = list(fields[5]).stream().map(JavaPlans::text).collect(Collectors.toList());
            List<TopicPartition> owned = list(fields[6]).stream().map(named -> {
                int colon = named.indexOf(':');
                return new TopicPartition(text(named.substring(0, colon)), Integer.parseInt(named.substring(colon + 1)));
            }).collect(Collectors.toList());
            ByteBuffer userData = fields[7].equals("-") ? null : ByteBuffer.wrap(HEX.parseHex(fields[7]));
            Optional<String> rack = fields[3].equals("-") ? Optional.empty() : Optional.of(text(fields[3]));
            Subscription said = new Subscription(topics, userData, owned, Integer.parseInt(fields[4]), rack);
            if (!fields[2].equals("-")) said.setGroupInstanceId(Optional.of(text(fields[2])));
            members.put(text(fields[1]), said);
        }

        void plan(String name, PrintStream out) {
            Cluster cluster = new Cluster("cluster", nodeOfRack.values(), partitions, Collections.emptySet(), Collections.emptySet());
            Map<String, Assignment> plan;
            try {
                members.values().stream().map(Subscription::userData).filter(d -> d != null).forEach(ByteBuffer::rewind);
                plan = named(name).assign(cluster, new GroupSubscription(members)).groupAssignment();
            } catch (RuntimeException error) {
                out.println("E " + name + " " + error.toString().replace('\n', ' '));
                return;
            }
            out.println("P " + name);
            plan.forEach((member, given) -> out.println(hex(member) + " " + given.partitions().stream()
                .map(p -> hex(p.topic()) + ":" + p.partition()).collect(Collectors.joining(","))));
            out.println(".");
        }
    }

    static List<String> list(String field) {
        return field.equals("-") ? Collections.emptyList() : Arrays.asList(field.split(","));
    }

    static String text(String hex) {
        return new String(HEX.parseHex(hex), StandardCharsets.UTF_8);
    }

    static String hex(String text) {
        return HEX.formatHex(text.getBytes(StandardCharsets.UTF_8));
    }
}
