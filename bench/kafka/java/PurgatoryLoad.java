import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.locks.LockSupport;
import org.apache.kafka.common.utils.AppInfoParser;
import org.apache.kafka.server.purgatory.DelayedOperation;
import org.apache.kafka.server.purgatory.DelayedOperationKey;
import org.apache.kafka.server.purgatory.DelayedOperationPurgatory;
import org.apache.kafka.server.purgatory.TopicPartitionOperationKey;

/**
 * The load of bench/purgatory/load.py in real time, carried by Kafka's DelayedOperationPurgatory; one line of JSON.
 *
 * <pre>
 * PurgatoryLoad shared|own LATENCIES KEYS WARMING ARRIVALS MILLISECONDS
 * </pre>
 *
 * <p>Rule 1: requests, latencies, arrivals and keys are those of Python, from files, each taken again from its beginning when
 * it is used up. One thread sends and answers, millisecond by millisecond.
 *
 * <p>Rule 2: the purgatory is made as a broker makes it: its own thread turns the timer and purges, a second one expires.
 *
 * <p>Rule 3: the JVM is warm: the arrivals of WARMING have come, in a purgatory of their own, before anything is measured.
 *
 * <p>Rule 4: here nothing is judged; what was counted is told.
 */
public final class PurgatoryLoad {
    private static final int TIMEOUT_MS = 200;
    private static final int KEYS_A_REQUEST = 3;

    private final DelayedOperationPurgatory<Request> purgatory = new DelayedOperationPurgatory<>("bench", 0);
    private final AtomicLong over = new AtomicLong();
    private final AtomicLong expired = new AtomicLong();
    private final Map<Integer, List<Request>> due = new HashMap<>();
    private final int[] latencies;
    private final List<List<TopicPartitionOperationKey>> lists;
    private volatile int nowMs;
    private long sent;
    private int pendingMost;
    private double behindMs;

    private PurgatoryLoad(int[] latencies, List<List<TopicPartitionOperationKey>> lists) {
        this.latencies = latencies;
        this.lists = lists;
    }

    public static void main(String[] arguments) throws Exception {
        int[] latencies = Cost.numbers(arguments[1]);
        List<List<TopicPartitionOperationKey>> lists = new ArrayList<>();
        if (arguments[0].equals("shared")) {
            lists = lists(Cost.numbers(arguments[2]));
        }
        int[] warming = Cost.numbers(arguments[3]);
        PurgatoryLoad warm = new PurgatoryLoad(latencies, lists);
        warm.run(warming, warming.length);
        warm.purgatory.shutdown();
        System.gc();
        PurgatoryLoad load = new PurgatoryLoad(latencies, lists);
        long begin = Cost.processNs();
        load.run(Cost.numbers(arguments[4]), Integer.parseInt(arguments[5]));
        System.out.println(load.json(Cost.processNs() - begin));
        load.purgatory.shutdown();
    }

    private static List<List<TopicPartitionOperationKey>> lists(int[] numbers) {
        List<List<TopicPartitionOperationKey>> lists = new ArrayList<>();
        for (int first = 0; first < numbers.length; first += KEYS_A_REQUEST) {
            List<TopicPartitionOperationKey> keys = new ArrayList<>();
            for (int place = first; place < first + KEYS_A_REQUEST; place++) {
                keys.add(new TopicPartitionOperationKey("topic", numbers[place]));
            }
            lists.add(List.copyOf(keys));
        }
        return lists;
    }

    private String json(long cpuNs) {
        return String.format(
                Locale.ROOT,
                "{\"kafka\": \"%s\", \"java\": \"%s\", \"sent\": %d, \"over\": %d, \"expired\": %d, \"delayed\": %d,"
                        + " \"behind_ms\": %.3f, \"pending_most\": %d, \"cpu_ns\": %d}",
                AppInfoParser.getVersion(), System.getProperty("java.version"), sent, over.get(), expired.get(),
                purgatory.numDelayed(), behindMs, pendingMost, cpuNs);
    }

    private void run(int[] arrivals, int durationMs) throws InterruptedException {
        long begin = System.nanoTime();
        for (int ms = 0; ms < durationMs; ms++) {
            waitUntil(begin + ms * 1_000_000L);
            answer(ms);
            send(arrivals[ms % arrivals.length], ms);
            if (ms % 100 == 0) {
                pendingMost = Math.max(pendingMost, purgatory.numDelayed());
            }
        }
        behindMs = Math.max(0.0, (System.nanoTime() - begin) / 1e6 - durationMs);
        for (int ms = durationMs; ms < durationMs + TIMEOUT_MS; ms++) {
            waitUntil(begin + ms * 1_000_000L);
            answer(ms);
        }
        for (int times = 0; over.get() < sent && times < 50; times++) {
            Thread.sleep(TIMEOUT_MS);
        }
        due.clear();
    }

    private static void waitUntil(long moment) {
        for (long ahead = moment - System.nanoTime(); ahead > 0; ahead = moment - System.nanoTime()) {
            LockSupport.parkNanos(ahead);
        }
    }

    private void answer(int ms) {
        nowMs = ms;
        List<Request> answered = due.remove(ms);
        if (answered != null) {
            for (Request request : answered) {
                request.answer();
            }
        }
    }

    private void send(int number, int ms) {
        for (int n = 0; n < number; n++) {
            int answeredMs = ms + latencies[(int) (sent % latencies.length)];
            Request request = new Request(answeredMs);
            if (lists.isEmpty()) {
                request.key = new Own(sent);
                purgatory.tryCompleteElseWatch(request, List.of(request.key));
            } else {
                purgatory.tryCompleteElseWatch(request, lists.get((int) (sent % lists.size())));
            }
            due.computeIfAbsent(answeredMs, moment -> new ArrayList<>()).add(request);
            sent++;
        }
    }

    private final class Request extends DelayedOperation {
        private final int answeredMs;
        private Own key;

        Request(int answeredMs) {
            super(TIMEOUT_MS);
            this.answeredMs = answeredMs;
        }

        void answer() {
            if (key == null) {
                forceComplete();
            } else {
                purgatory.checkAndComplete(key);
            }
        }

        @Override
        public boolean tryComplete() {
            return nowMs >= answeredMs && forceComplete();
        }

        @Override
        public void onComplete() {
            over.incrementAndGet();
        }

        @Override
        public void onExpiration() {
            expired.incrementAndGet();
        }
    }

    /** A key of one request's own. */
    private record Own(long number) implements DelayedOperationKey {
        @Override
        public String keyLabel() {
            return Long.toString(number);
        }
    }
}
