import io.debezium.engine.ChangeEvent;
import io.debezium.engine.DebeziumEngine;
import io.debezium.engine.format.Json;
import java.io.FileReader;
import java.io.PrintStream;
import java.io.Reader;
import java.util.Properties;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;

/**
 * Debezium's engine in this process: each of its messages as three lines on stdout, topic, key and value.
 *
 * <p>Arguments: a file with the connector's properties, and after how many messages to which topic it is closed. In a batch
 * more may come: they are told too.
 */
public class Told {
    public static void main(String[] arguments) throws Exception {
        Properties properties = new Properties();
        try (Reader file = new FileReader(arguments[0])) {
            properties.load(file);
        }
        long wanted = Long.parseLong(arguments[1]);
        String counted = arguments[2];
        PrintStream out = new PrintStream(System.out, false, "UTF-8");
        CountDownLatch ended = new CountDownLatch(1);
        String[] why = {""};
        long[] seen = {0};
        DebeziumEngine<ChangeEvent<String, String>> engine = DebeziumEngine.create(Json.class)
                .using(properties)
                .using((success, message, error) -> {
                    why[0] = message;
                    for (Throwable cause = error; cause != null; cause = cause.getCause()) {
                        why[0] += "\n" + cause;
                    }
                    ended.countDown();
                })
                .notifying((records, committer) -> {
                    for (ChangeEvent<String, String> record : records) {
                        out.println(record.destination());
                        out.println(record.key());
                        out.println(record.value());
                        seen[0] += record.destination().equals(counted) ? 1 : 0;
                        committer.markProcessed(record);
                    }
                    committer.markBatchFinished();
                    out.flush();
                    if (seen[0] >= wanted) {
                        ended.countDown();
                    }
                })
                .build();
        ExecutorService thread = Executors.newSingleThreadExecutor();
        thread.execute(engine);
        ended.await();
        if (seen[0] < wanted) {
            System.err.println(why[0]);
            System.exit(1);
        }
        engine.close();
        thread.shutdown();
        System.exit(0);
    }
}
