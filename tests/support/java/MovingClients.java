import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * Applications with Kafka's own Java clients, each in a thread, that say what happens to them, a line each:
 * {@code said TAB name TAB milliseconds TAB what TAB words}. They go on until the process is killed.
 *
 * Run as: java -cp JARS MovingClients.java FILE, where each line of FILE is
 * {@code name TAB kind TAB topic TAB partition TAB first TAB key=value TAB ...}; kinds are subscribed, assigned,
 * plain and transactional; a writer's first number is {@code first}.
 */
public class MovingClients {
    private static final Duration POLL = Duration.ofMillis(100);
    private static final Duration COMMIT = Duration.ofSeconds(5);
    private static final long PACE_MS = 50;

    public static void main(String[] args) throws Exception {
        for (String line : Files.readAllLines(Path.of(args[0]))) {
            String[] words = line.split("\t");
            Map<String, Object> config = new HashMap<>();
            for (int i = 5; i < words.length; i++) {
                int at = words[i].indexOf('=');
                config.put(words[i].substring(0, at), words[i].substring(at + 1));
            }
            MovingClients client = new MovingClients(words, config);
            new Thread(() -> client.run(words[1]), words[0]).start();
        }
    }

    private final String name;
    private final String topic;
    private final int partition;
    private final int first;
    private final Map<String, Object> config;

    private MovingClients(String[] words, Map<String, Object> config) {
        this.name = words[0];
        this.topic = words[2];
        this.partition = Integer.parseInt(words[3]);
        this.first = Integer.parseInt(words[4]);
        this.config = config;
    }

    private void run(String kind) {
        try {
            switch (kind) {
                case "subscribed", "assigned" -> consume(kind.equals("assigned"));
                case "plain", "transactional" -> produce(kind.equals("transactional"));
                default -> throw new IllegalArgumentException(kind);
            }
        } catch (Exception error) {
            fail("died", error);
        }
    }

    /** Reads, and commits what it has read, as most applications do: from its own memory. */
    private void consume(boolean assigned) throws InterruptedException {
        StringDeserializer text = new StringDeserializer();
        try (KafkaConsumer<String, String> consumer = new KafkaConsumer<>(config, text, text)) {
            if (assigned) {
                consumer.assign(List.of(new TopicPartition(topic, partition)));
            } else {
                consumer.subscribe(List.of(topic));
            }
            while (true) {
                try {
                    ConsumerRecords<String, String> records = consumer.poll(POLL);
                    for (ConsumerRecord<String, String> record : records) {
                        say("read", record.partition(), record.offset(), record.value());
                    }
                    if (!records.isEmpty()) {
                        commit(consumer, records);
                    }
                } catch (RuntimeException error) {
                    fail("failed", error);
                    Thread.sleep(PACE_MS * 4);
                }
            }
        }
    }

    private void commit(KafkaConsumer<String, String> consumer, ConsumerRecords<String, String> records) {
        Map<TopicPartition, OffsetAndMetadata> behind = new HashMap<>();
        for (TopicPartition tp : records.partitions()) {
            List<ConsumerRecord<String, String>> of = records.records(tp);
            behind.put(tp, new OffsetAndMetadata(of.get(of.size() - 1).offset() + 1));
        }
        consumer.commitSync(behind, COMMIT);
        behind.forEach((tp, offset) -> say("committed", tp.partition(), offset.offset(), ""));
    }

    /** Writes numbers, each once it knows that the one before is there; what was refused is tried again. */
    private void produce(boolean transactional) throws InterruptedException {
        StringSerializer text = new StringSerializer();
        try (KafkaProducer<String, String> producer = new KafkaProducer<>(config, text, text)) {
            if (transactional) {
                producer.initTransactions();
            }
            for (int number = first; true; Thread.sleep(PACE_MS)) {
                try {
                    if (transactional) {
                        producer.beginTransaction();
                    }
                    String value = name + "-" + number;
                    long offset = producer.send(new ProducerRecord<>(topic, partition, "k", value)).get().offset();
                    if (transactional) {
                        producer.commitTransaction();
                    }
                    say("acked", partition, offset, value);
                    number++;
                } catch (Exception error) {
                    fail("failed", error.getCause() == null ? error : error.getCause());
                    if (transactional) {
                        producer.abortTransaction();
                    }
                }
            }
        }
    }

    private void fail(String what, Throwable error) {
        say(what, -1, -1, error.getClass().getSimpleName() + ": " + error.getMessage());
    }

    private synchronized void say(String what, int where, long offset, String words) {
        String shown = words == null ? "" : words.replaceAll("\\s+", " ");
        String line = String.join("\t", "said", name, String.valueOf(System.currentTimeMillis()), what,
            String.valueOf(where), String.valueOf(offset), shown);
        System.out.println(line);
    }
}
