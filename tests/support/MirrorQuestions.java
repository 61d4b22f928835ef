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
import org.apache.kafka.connect.mirror.MirrorClient;
import org.apache.kafka.connect.mirror.OffsetSync;
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
        each(args[0], "mm2-offset-syncs." + source + ".internal", record -> {
            OffsetSync sync = OffsetSync.deserializeRecord(record);
            TopicPartition tp = sync.topicPartition();
            say("sync", tp.topic(), tp.partition(), sync.upstreamOffset(), sync.downstreamOffset());
        });
        each(args[0], source + ".heartbeats", record -> {
            Heartbeat beat = Heartbeat.deserializeRecord(record);
            say("beat", beat.sourceClusterAlias(), beat.targetClusterAlias(), beat.timestamp(), record.timestamp());
        });
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
