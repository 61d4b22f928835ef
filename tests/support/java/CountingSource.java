import java.io.File;
import java.io.IOException;
import java.nio.file.Files;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import org.apache.kafka.common.config.Config;
import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.common.config.ConfigDef.Importance;
import org.apache.kafka.common.config.ConfigDef.Type;
import org.apache.kafka.common.config.ConfigValue;
import org.apache.kafka.connect.connector.Task;
import org.apache.kafka.connect.data.Schema;
import org.apache.kafka.connect.errors.ConnectException;
import org.apache.kafka.connect.source.ConnectorTransactionBoundaries;
import org.apache.kafka.connect.source.ExactlyOnceSupport;
import org.apache.kafka.connect.source.SourceConnector;
import org.apache.kafka.connect.source.SourceRecord;
import org.apache.kafka.connect.source.SourceTask;
import org.apache.kafka.connect.source.TransactionContext;

/**
 * Counts, so that a record too few or too many shows: source partition i writes 0, 1, 2, ... into partition i
 * of {@code topic}. Its offset {"count": n} is the last number written; started with it, it goes on at n + 1,
 * and without it at 0.
 */
public class CountingSource extends SourceConnector {
    static final ConfigDef CONFIG = new ConfigDef()
        .define("topic", Type.STRING, Importance.HIGH, "where to write")
        .define("partitions", Type.INT, 1, Importance.HIGH, "how many source partitions")
        .define("fields", Type.LIST, "shard", Importance.LOW,
            "fields of a source partition in the order in which they are serialised; the first holds its number")
        .define("batch", Type.INT, 5, Importance.LOW, "records of each partition in a poll")
        .define("pause.ms", Type.LONG, 50L, Importance.LOW, "between two polls")
        .define("until", Type.LONG, Long.MAX_VALUE, Importance.LOW, "the first number that is not written")
        .define("forget.if", Type.STRING, "", Importance.LOW,
            "file whose existence makes a task begin at 0 whatever its offset")
        .define("refuse.if", Type.STRING, "", Importance.LOW,
            "file whose existence makes every configuration invalid, as if a database were away")
        .define("fail.if", Type.STRING, "", Importance.LOW,
            "file whose existence makes the connector fail where it starts, or says \"tasks\", its tasks")
        .define("commit.every", Type.INT, 0, Importance.LOW,
            "with transaction.boundary=connector: polls in a transaction; 0 never commits");

    private Map<String, String> properties;

    @Override
    public void start(Map<String, String> started) {
        properties = started;
        failIf(started, "");
    }

    @Override
    public Config validate(Map<String, String> given) {
        Config found = super.validate(given);
        if (new File(given.getOrDefault("refuse.if", "")).exists()) {
            for (ConfigValue value : found.configValues()) {
                if (value.name().equals("topic")) {
                    value.addErrorMessage("the database is away");
                }
            }
        }
        return found;
    }

    /** Fails where the file exists and says just this. */
    static void failIf(Map<String, String> properties, String words) {
        File file = new File(properties.getOrDefault("fail.if", ""));
        try {
            if (file.exists() && Files.readString(file.toPath()).equals(words)) {
                throw new ConnectException("the database is gone");
            }
        } catch (IOException error) {
            throw new ConnectException(error);
        }
    }

    @Override
    public Class<? extends Task> taskClass() {
        return Counter.class;
    }

    @Override
    public List<Map<String, String>> taskConfigs(int maxTasks) {
        int partitions = Integer.parseInt(properties.getOrDefault("partitions", "1"));
        List<Map<String, String>> configs = new ArrayList<>();
        int tasks = Math.min(maxTasks, partitions);
        for (int task = 0; task < tasks; task++) {
            Map<String, String> config = new HashMap<>(properties);
            config.put("task.number", Integer.toString(task));
            config.put("task.count", Integer.toString(tasks));
            configs.add(config);
        }
        return configs;
    }

    @Override
    public void stop() {
    }

    @Override
    public ConfigDef config() {
        return CONFIG;
    }

    @Override
    public ExactlyOnceSupport exactlyOnceSupport(Map<String, String> config) {
        return ExactlyOnceSupport.SUPPORTED;
    }

    @Override
    public ConnectorTransactionBoundaries canDefineTransactionBoundaries(Map<String, String> config) {
        return ConnectorTransactionBoundaries.SUPPORTED;
    }

    @Override
    public boolean alterOffsets(Map<String, String> config, Map<Map<String, ?>, Map<String, ?>> offsets) {
        return true;
    }

    @Override
    public String version() {
        return "1";
    }

    public static class Counter extends SourceTask {
        private final Map<Integer, Long> next = new TreeMap<>();
        private List<String> fields;
        private String topic;
        private int batch;
        private long pauseMs;
        private long until;
        private int commitEvery;
        private int polls;

        @Override
        public void start(Map<String, String> properties) {
            failIf(properties, "tasks");
            Map<String, Object> parsed = CONFIG.parse(properties);
            topic = (String) parsed.get("topic");
            fields = new ArrayList<>();
            for (Object field : (List<?>) parsed.get("fields")) {
                fields.add((String) field);
            }
            batch = (Integer) parsed.get("batch");
            pauseMs = (Long) parsed.get("pause.ms");
            until = (Long) parsed.get("until");
            commitEvery = (Integer) parsed.get("commit.every");
            boolean forget = new File((String) parsed.get("forget.if")).exists();
            int task = Integer.parseInt(properties.get("task.number"));
            int tasks = Integer.parseInt(properties.get("task.count"));
            for (int partition = task; partition < (Integer) parsed.get("partitions"); partition += tasks) {
                Map<String, Object> offset = context.offsetStorageReader().offset(sourcePartition(partition));
                next.put(partition, offset == null || forget ? 0L : ((Number) offset.get("count")).longValue() + 1);
            }
        }

        @Override
        public List<SourceRecord> poll() throws InterruptedException {
            Thread.sleep(pauseMs);
            List<SourceRecord> records = new ArrayList<>();
            for (Map.Entry<Integer, Long> entry : next.entrySet()) {
                int partition = entry.getKey();
                for (int left = batch; left > 0 && entry.getValue() < until; left--) {
                    long number = entry.getValue();
                    records.add(new SourceRecord(sourcePartition(partition), Map.of("count", number), topic,
                        partition, Schema.STRING_SCHEMA, "k" + partition, Schema.STRING_SCHEMA,
                        Long.toString(number)));
                    entry.setValue(number + 1);
                }
            }
            if (records.isEmpty()) {
                return null;
            }
            polls++;
            TransactionContext transaction = context.transactionContext();
            if (transaction != null && commitEvery > 0 && polls % commitEvery == 0) {
                transaction.commitTransaction();
            }
            return records;
        }

        /** Serialised in the order of its fields: a HashMap would have another one. */
        private Map<String, Object> sourcePartition(int number) {
            Map<String, Object> partition = new LinkedHashMap<>();
            for (String field : fields) {
                partition.put(field, partition.isEmpty() ? (Object) Integer.toString(number) : field + "-value");
            }
            return partition;
        }

        @Override
        public void stop() {
        }

        @Override
        public String version() {
            return "1";
        }
    }
}
