package streams;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.time.Duration;
import java.util.Map;
import java.util.Properties;
import java.util.UUID;
import orders.Event;
import orders.Tally;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.utils.AppInfoParser;
import org.apache.kafka.streams.AutoOffsetReset;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.state.KeyValueBytesStoreSupplier;
import org.apache.kafka.streams.state.Stores;

/**
 * The orders and their rules in Kafka Streams, topic to topic; a run for each line of the standard input, its record on the
 * output.
 *
 * <pre>
 * SERVERS INPUT_TOPIC rocksdb|memory OUTPUT_TOPIC FOLDER_OF_ITS_OWN RESULTS
 * </pre>
 *
 * <p>Rule 1: exactly_once_v2, a commit each second, two threads, stores with a changelog.
 *
 * <p>Rule 2: it is done when so many RESULTS are made and committed. It never ends by itself.
 */
public final class Main {
    private static final long PATIENCE_MS = 170_000;
    private static final String ALL_KEPT = "-1";

    private Main() {}

    public static void main(String[] arguments) throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] words = line.strip().split(" ");
            Topology topology = topology(words[1], words[2].equals("memory"), words[3]);
            System.out.println(run(topology, settings(words[0], words[4]), Long.parseLong(words[5])));
        }
        System.exit(0);
    }

    private static String run(Topology topology, Properties settings, long results) throws InterruptedException {
        Tally.begin();
        KafkaStreams streams = new KafkaStreams(topology, settings);
        streams.start();
        for (long ms = 0; Tally.results() < results && streams.state() != KafkaStreams.State.ERROR && ms < PATIENCE_MS; ms += 5) {
            Thread.sleep(5);
        }
        streams.close(Duration.ofSeconds(30)); // it commits
        Tally.committed();
        streams.cleanUp();
        return Tally.end("\"version\": \"Kafka Streams " + AppInfoParser.getVersion() + "\"");
    }

    private static Topology topology(String input, boolean inMemory, String output) {
        var orders = Stores.keyValueStoreBuilder(store(Rules.ORDERS, inMemory), Serdes.String(), Form.ORDER);
        var alarms = Stores.keyValueStoreBuilder(store(Rules.ALARMS, inMemory), Serdes.Bytes(), Serdes.ByteArray());
        return new Topology()
                .addSource(AutoOffsetReset.earliest(), "in", (record, before) -> ((Event) record.value()).ts / 1000,
                        Serdes.String().deserializer(), Form.EVENT, input)
                .addProcessor("rules", Rules::new, "in")
                .addStateStore(orders.withCachingEnabled().withLoggingEnabled(Map.of()), "rules")
                .addStateStore(alarms.withCachingEnabled().withLoggingEnabled(Map.of()), "rules")
                .addSink("out", output, Serdes.String().serializer(), Form.RESULT, "rules");
    }

    private static KeyValueBytesStoreSupplier store(String name, boolean inMemory) {
        return inMemory ? Stores.inMemoryKeyValueStore(name) : Stores.persistentKeyValueStore(name);
    }

    private static Properties settings(String servers, String folder) {
        Properties settings = new Properties();
        settings.put(StreamsConfig.APPLICATION_ID_CONFIG, "orders-" + UUID.randomUUID());
        settings.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, servers);
        settings.put(StreamsConfig.STATE_DIR_CONFIG, folder);
        settings.put(StreamsConfig.PROCESSING_GUARANTEE_CONFIG, StreamsConfig.EXACTLY_ONCE_V2);
        settings.put(StreamsConfig.COMMIT_INTERVAL_MS_CONFIG, 1000);
        settings.put(StreamsConfig.NUM_STREAM_THREADS_CONFIG, 2);
        settings.put(StreamsConfig.REPLICATION_FACTOR_CONFIG, 1);
        settings.put(StreamsConfig.STATESTORE_CACHE_MAX_BYTES_CONFIG, 64L << 20);
        settings.put(StreamsConfig.topicPrefix("retention.ms"), ALL_KEPT); // event time is long ago
        return settings;
    }
}
