// One case of the assignors' benchmark with Kafka's own assignors:
//   java JavaAssign.java ASSIGNOR MEMBERS PARTITIONS TOPICS alike|half fresh|gone RUNS
// prints "seconds SECONDS", "bytes SECONDS" (from subscriptions as bytes to assignments as bytes) and "peak MEGABYTES".
// Members are m0, m1, ...; with "half" every other member subscribes to the first half of the topics only. "gone" plans
// fresh first, then lets every tenth member leave and measures the plan of the rest.

import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.Assignment;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.GroupSubscription;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.Subscription;
import org.apache.kafka.clients.consumer.CooperativeStickyAssignor;
import org.apache.kafka.clients.consumer.RangeAssignor;
import org.apache.kafka.clients.consumer.RoundRobinAssignor;
import org.apache.kafka.clients.consumer.StickyAssignor;
import org.apache.kafka.clients.consumer.internals.ConsumerProtocol;
import org.apache.kafka.common.Cluster;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.PartitionInfo;
import org.apache.kafka.common.TopicPartition;

public class JavaAssign {
    static ConsumerPartitionAssignor named(String name) {
        switch (name) {
            case "range": return new RangeAssignor();
            case "roundrobin": return new RoundRobinAssignor();
            case "sticky": return new StickyAssignor();
            case "cooperative-sticky": return new CooperativeStickyAssignor();
            default: throw new IllegalArgumentException(name);
        }
    }

    static Subscription said(String assignor, List<String> topics, List<TopicPartition> owned) {
        ConsumerPartitionAssignor writer = named(assignor);
        writer.onAssignment(new Assignment(owned), new ConsumerGroupMetadata("group", 1, "member", Optional.empty()));
        ByteBuffer userData = writer.subscriptionUserData(Set.copyOf(topics));
        List<TopicPartition> claimed = assignor.equals("cooperative-sticky") ? owned : Collections.emptyList();
        return new Subscription(topics, userData, claimed, 1, Optional.empty());
    }

    static Map<String, Assignment> plan(String assignor, Cluster cluster, Map<String, Subscription> members) {
        members.values().forEach(member -> { if (member.userData() != null) member.userData().rewind(); });
        return named(assignor).assign(cluster, new GroupSubscription(members)).groupAssignment();
    }

    public static void main(String[] arguments) throws Exception {
        String assignor = arguments[0];
        int members = Integer.parseInt(arguments[1]);
        int partitions = Integer.parseInt(arguments[2]);
        int topics = Integer.parseInt(arguments[3]);
        boolean half = arguments[4].equals("half");
        boolean gone = arguments[5].equals("gone");
        int runs = Integer.parseInt(arguments[6]);

        List<String> every = new ArrayList<>();
        List<PartitionInfo> infos = new ArrayList<>();
        Node[] none = new Node[0];
        for (int t = 0; t < topics; t++) {
            every.add("topic-" + t);
            for (int p = 0; p < partitions / topics; p++) infos.add(new PartitionInfo("topic-" + t, p, null, none, none));
        }
        Cluster cluster = new Cluster("cluster", Collections.emptyList(), infos, Set.of(), Set.of());
        Map<String, Subscription> group = new HashMap<>();
        for (int m = 0; m < members; m++) {
            List<String> wanted = half && m % 2 == 0 ? every.subList(0, topics / 2) : every;
            group.put("m" + m, said(assignor, wanted, Collections.emptyList()));
        }
        if (gone) {
            Map<String, Assignment> before = plan(assignor, cluster, group);
            Map<String, Subscription> rest = new HashMap<>();
            for (int m = 0; m < members; m++)
                if (m % 10 != 0) {
                    String id = "m" + m;
                    rest.put(id, said(assignor, group.get(id).topics(), before.get(id).partitions()));
                }
            group = rest;
        }
        double best = Double.MAX_VALUE;
        for (int run = 0; run < runs; run++) {
            long start = System.nanoTime();
            Map<String, Assignment> plan = plan(assignor, cluster, group);
            best = Math.min(best, (System.nanoTime() - start) / 1e9);
            if (plan.size() != group.size()) throw new IllegalStateException();
        }
        System.out.println("seconds " + best);
        System.out.println("peak " + peakMegabytes());

        Map<String, ByteBuffer> wire = new HashMap<>();
        group.forEach((id, said) -> {
            if (said.userData() != null) said.userData().rewind();
            wire.put(id, ConsumerProtocol.serializeSubscription(said));
        });
        best = Double.MAX_VALUE;
        for (int run = 0; run < runs; run++) {
            long start = System.nanoTime();
            Map<String, Subscription> read = new HashMap<>();
            wire.forEach((id, bytes) -> read.put(id, ConsumerProtocol.deserializeSubscription(bytes.duplicate())));
            Map<String, ByteBuffer> written = new HashMap<>();
            plan(assignor, cluster, read).forEach((id, one) -> written.put(id, ConsumerProtocol.serializeAssignment(one)));
            best = Math.min(best, (System.nanoTime() - start) / 1e9);
            if (written.size() != group.size()) throw new IllegalStateException();
        }
        System.out.println("bytes " + best);
    }

    /** The most memory this process ever had. */
    static long peakMegabytes() throws Exception {
        for (String line : Files.readAllLines(Path.of("/proc/self/status")))
            if (line.startsWith("VmHWM:")) return Long.parseLong(line.replaceAll("\\D", "")) / 1024;
        return 0;
    }
}
