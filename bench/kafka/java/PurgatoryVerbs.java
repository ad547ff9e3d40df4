import java.util.ArrayList;
import java.util.List;
import java.util.Locale;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.kafka.common.utils.AppInfoParser;
import org.apache.kafka.server.purgatory.DelayedOperation;
import org.apache.kafka.server.purgatory.DelayedOperationPurgatory;
import org.apache.kafka.server.purgatory.TopicPartitionOperationKey;
import org.apache.kafka.server.util.timer.SystemTimer;

/**
 * The verbs of bench/purgatory/verbs.py, done by Kafka's DelayedOperationPurgatory; the result is one line of JSON.
 *
 * <pre>
 * PurgatoryVerbs KEYS SIZE     CPU ns an operation by verb; KEYS are 3 of 100 for each operation
 * </pre>
 *
 * <p>Rule 1: one thread and a clock that stands: the purgatory's own thread is off, and with it the purging of completed
 * operations out of watch lists, which Kafka leaves for later. No verb pays for that here.
 *
 * <p>Rule 2: so each of force-complete and check has a purgatory of its own, and none meets what another left.
 *
 * <p>Rule 3: the JVM is warm: WARMED operations went through all verbs before anything is timed.
 */
public final class PurgatoryVerbs {
    private static final int WARMED = 2_000_000;
    private static final int KEYS = 100;
    private static final int KEYS_A_REQUEST = 3;
    private static final long HOUR_MS = 3_600_000;

    private final List<List<TopicPartitionOperationKey>> lists = new ArrayList<>();
    private final List<TopicPartitionOperationKey> keys = new ArrayList<>();
    private final AtomicLong over = new AtomicLong();
    private boolean holds;

    private PurgatoryVerbs(int[] numbers, int size) {
        for (int number = 0; number < KEYS; number++) {
            keys.add(new TopicPartitionOperationKey("topic", number));
        }
        for (int first = 0; first < size * KEYS_A_REQUEST; first += KEYS_A_REQUEST) {
            lists.add(List.of(keys.get(numbers[first]), keys.get(numbers[first + 1]), keys.get(numbers[first + 2])));
        }
    }

    public static void main(String[] arguments) throws Exception {
        int size = Integer.parseInt(arguments[1]);
        PurgatoryVerbs verbs = new PurgatoryVerbs(Cost.numbers(arguments[0]), size);
        for (int warmed = 0; warmed < WARMED; warmed += 2 * size) {
            verbs.once(Cost.NONE, Cost.NONE, Cost.NONE);
        }
        Cost watch = new Cost();
        Cost force = new Cost();
        Cost check = new Cost();
        verbs.over.set(0);
        verbs.once(watch, force, check);
        System.out.println(String.format(
                Locale.ROOT,
                "{\"kafka\": \"%s\", \"java\": \"%s\", \"over\": %d, \"watch\": %.2f, \"force-complete\": %.2f, \"check\": %.2f}",
                AppInfoParser.getVersion(), System.getProperty("java.version"), verbs.over.get(),
                watch.threadNsAnOperation(), force.threadNsAnOperation(), check.threadNsAnOperation()));
    }

    private void once(Cost watch, Cost force, Cost check) throws Exception {
        int size = lists.size();
        DelayedOperationPurgatory<Asked> first = purgatory();
        Asked[] operations = operations();
        watch.add(() -> watch(first, operations), size, size);
        Cost.shuffle(operations, size);
        force.add(() -> forceAll(operations), size, size);
        first.shutdown();
        DelayedOperationPurgatory<Asked> second = purgatory();
        watch(second, operations());
        holds = true;
        check.add(() -> check(second), size, size);
        holds = false;
        second.shutdown();
    }

    private static DelayedOperationPurgatory<Asked> purgatory() {
        return new DelayedOperationPurgatory<>("bench", new SystemTimer("bench"), 0, 1000, false, true);
    }

    private Asked[] operations() {
        Asked[] operations = new Asked[lists.size()];
        for (int place = 0; place < operations.length; place++) {
            operations[place] = new Asked();
        }
        return operations;
    }

    private void watch(DelayedOperationPurgatory<Asked> purgatory, Asked[] operations) {
        for (int place = 0; place < operations.length; place++) {
            purgatory.tryCompleteElseWatch(operations[place], lists.get(place));
        }
    }

    private static void forceAll(Asked[] operations) {
        for (Asked operation : operations) {
            operation.forceComplete();
        }
    }

    private void check(DelayedOperationPurgatory<Asked> purgatory) {
        for (TopicPartitionOperationKey key : keys) {
            purgatory.checkAndComplete(key);
        }
    }

    /** Completes when all do. */
    private final class Asked extends DelayedOperation {
        Asked() {
            super(HOUR_MS);
        }

        @Override
        public boolean tryComplete() {
            return holds && forceComplete();
        }

        @Override
        public void onComplete() {
            over.lazySet(over.getPlain() + 1);
        }

        @Override
        public void onExpiration() {}
    }
}
