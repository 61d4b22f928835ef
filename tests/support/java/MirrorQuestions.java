import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.function.Consumer;
import java.util.regex.Pattern;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.connect.mirror.Heartbeat;
import org.apache.kafka.connect.mirror.MirrorCheckpointConfig;
import org.apache.kafka.connect.mirror.MirrorClient;
import org.apache.kafka.connect.mirror.OffsetSync;
import org.apache.kafka.connect.mirror.OffsetSyncStore;
import org.apache.kafka.connect.mirror.RemoteClusterUtils;

/**
 * Asks Kafka's own classes what they find on a target cluster, and prints the answers, one per line.
 *
 * Run as: java -cp JARS MirrorQuestions.java BOOTSTRAP POLICY_CLASS SOURCE_ALIAS UNKNOWN_ALIAS
 */
public class MirrorQuestions {
    private static final Duration TIMEOUT = Duration.ofSeconds(20);

    public static void main(String[] args) throws Exception {
        Map<String, Object> config = new HashMap<>();
        config.put("bootstrap.servers", args[0]);
        config.put("replication.policy.class", args[1]);
        String source = args[2];
        for (String alias : List.of(source, args[3])) {
            say("hops", alias, RemoteClusterUtils.replicationHops(config, alias));
        }
        RemoteClusterUtils.upstreamClusters(config).forEach(alias -> say("upstream", alias));
        RemoteClusterUtils.heartbeatTopics(config).forEach(topic -> say("heartbeats", topic));
        RemoteClusterUtils.checkpointTopics(config).forEach(topic -> say("checkpoints", topic));
        try (MirrorClient client = new MirrorClient(config)) {
            client.remoteTopics(source).forEach(topic -> say("remote", topic));
        }
        RemoteClusterUtils.translateOffsets(config, source, Pattern.compile(".*"), TIMEOUT).forEach(
            (group, offsets) -> offsets.forEach((tp, offset) ->
                say("group", group, tp.topic(), tp.partition(), offset.offset(), offset.metadata())));
        Map<TopicPartition, Long> newest = new HashMap<>();
        each(args[0], "mm2-offset-syncs." + source + ".internal", record -> {
            OffsetSync sync = OffsetSync.deserializeRecord(record);
            TopicPartition tp = sync.topicPartition();
            say("sync", tp.topic(), tp.partition(), sync.upstreamOffset(), sync.downstreamOffset());
            newest.put(tp, sync.upstreamOffset());
        });
        estimate(args[0], source, newest);
        each(args[0], source + ".heartbeats", record -> {
            Heartbeat beat = Heartbeat.deserializeRecord(record);
            say("beat", beat.sourceClusterAlias(), beat.targetClusterAlias(), beat.timestamp(), record.timestamp());
        });
    }

    /** Lets the store behind MirrorMaker's checkpoint task translate the newest syncs and the offsets after them. */
    private static void estimate(String bootstrap, String source, Map<TopicPartition, Long> newest) throws Exception {
        MirrorCheckpointConfig config = new MirrorCheckpointConfig(Map.of(
            "name", "questions",
            "connector.class", "MirrorCheckpointConnector",
            "source.cluster.alias", source,
            "target.cluster.alias", "west",
            "source.cluster.bootstrap.servers", "localhost:1",
            "target.cluster.bootstrap.servers", bootstrap,
            "offset-syncs.topic.location", "target"));
        var constructor = OffsetSyncStore.class.getDeclaredConstructor(MirrorCheckpointConfig.class);
        constructor.setAccessible(true);
        try (OffsetSyncStore store = constructor.newInstance(config)) {
            store.start(true);
            newest.forEach((tp, offset) -> {
                for (long upstream : new long[] {offset, offset + 1}) {
                    long downstream = store.translateDownstream("any", tp, upstream).orElse(-1L);
                    say("estimate", tp.topic(), tp.partition(), upstream, downstream);
                }
            });
        }
    }

    private static void each(String bootstrap, String topic, Consumer<ConsumerRecord<byte[], byte[]>> seen) {
        Map<String, Object> config = Map.of("bootstrap.servers", bootstrap, "auto.offset.reset", "earliest");
        ByteArrayDeserializer bytes = new ByteArrayDeserializer();
        try (KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(config, bytes, bytes)) {
            List<TopicPartition> all = List.of(new TopicPartition(topic, 0));
            consumer.assign(all);
            consumer.seekToBeginning(all);
            long end = consumer.endOffsets(all).get(all.get(0));
            while (consumer.position(all.get(0)) < end) {
                consumer.poll(TIMEOUT).forEach(seen);
            }
        }
    }

    private static void say(Object... words) {
        String[] shown = new String[words.length];
        for (int i = 0; i < words.length; i++) {
            shown[i] = String.valueOf(words[i]);
        }
        System.out.println("answer\t" + String.join("\t", shown));
    }
}
