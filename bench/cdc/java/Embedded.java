import io.debezium.engine.ChangeEvent;
import io.debezium.engine.DebeziumEngine;
import io.debezium.engine.format.Json;
import java.io.FileReader;
import java.io.Reader;
import java.lang.management.ManagementFactory;
import java.util.Properties;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;

/**
 * Debezium's engine in this process, with JSON as its form and no sink: it ends when so many row changes have come, or
 * fails when none came for a minute.
 *
 * <p>Arguments: a file with the connector's properties, how many changes, and how the names of the topics begin whose changes
 * count. Told in the last line: the changes, the bytes of their keys and values, seconds from the first to the last, the
 * processor's seconds until the first.
 */
public class Embedded {
    private static final com.sun.management.OperatingSystemMXBean PROCESS =
            (com.sun.management.OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();

    private static final long IDLE_NS = TimeUnit.MINUTES.toNanos(1);

    private static String counted;
    private static volatile long changes;
    private static long bytes;
    private static long firstNs;
    private static volatile long lastNs;
    private static double beforeS;

    public static void main(String[] arguments) throws Exception {
        Properties properties = new Properties();
        try (Reader file = new FileReader(arguments[0])) {
            properties.load(file);
        }
        counted = arguments[2];
        long wanted = Long.parseLong(arguments[1]);
        CountDownLatch ended = new CountDownLatch(1);
        String[] why = {""};
        DebeziumEngine<ChangeEvent<String, String>> engine = DebeziumEngine.create(Json.class)
                .using(properties)
                .using((success, message, error) -> {
                    why[0] = message;
                    for (Throwable cause = error; cause != null; cause = cause.getCause()) {
                        why[0] = cause.toString();
                    }
                    ended.countDown();
                })
                .notifying((records, committer) -> {
                    for (ChangeEvent<String, String> record : records) {
                        take(record);
                        committer.markProcessed(record);
                    }
                    committer.markBatchFinished();
                    if (changes >= wanted) {
                        ended.countDown();
                    }
                })
                .build();
        ExecutorService thread = Executors.newSingleThreadExecutor();
        thread.execute(engine);
        while (!ended.await(1, TimeUnit.SECONDS)) {
            if (changes > 0 && System.nanoTime() - lastNs > IDLE_NS) {
                why[0] = String.format("only %d of %d changes came, and none for a minute", changes, wanted);
                break;
            }
        }
        if (changes < wanted) {
            System.err.println(why[0]);
            System.exit(1);
        }
        engine.close();
        thread.shutdown();
        System.out.printf(
                java.util.Locale.ROOT,
                "{\"changes\": %d, \"bytes\": %d, \"seconds\": %.3f, \"start_cpu_s\": %.3f}%n",
                changes, bytes, (lastNs - firstNs) / 1e9, beforeS);
        System.exit(0);
    }

    private static void take(ChangeEvent<String, String> record) {
        if (record.value() == null || !record.destination().startsWith(counted)) {
            return;
        }
        if (changes == 0) {
            firstNs = System.nanoTime();
            beforeS = PROCESS.getProcessCpuTime() / 1e9;
        }
        changes++;
        bytes += record.value().length() + (record.key() == null ? 0 : record.key().length());
        lastNs = System.nanoTime();
    }
}
