package orders;

import java.util.Locale;
import java.util.StringJoiner;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.LongAdder;

/**
 * What one run has done: events taken, results by kind, and when it had taken how many. As JSON, on one line.
 *
 * <p>Rule 1: orders that only move time on (their keys begin with "end") are taken, and not counted among the results.
 *
 * <p>Rule 2: moments are those of the machine's steady clock, which every process of it shares.
 */
public final class Tally {
    private static final long LOOK_EVERY_MS = 20;
    private static volatile Tally now = new Tally();

    private final LongAdder taken = new LongAdder();
    private final ConcurrentHashMap<String, LongAdder> results = new ConcurrentHashMap<>();
    private final StringJoiner marks = new StringJoiner(", ", "[", "]");
    private final long beganNs = System.nanoTime();
    private volatile long endedNs;
    private final Thread looking = new Thread(this::look, "tally");

    /** A run begins. */
    public static void begin() {
        now = new Tally();
        now.looking.setDaemon(true);
        now.looking.start();
    }

    /** An event was given to the rules. */
    public static void take() {
        now.taken.increment();
    }

    /** The rules have made a result. */
    public static void made(Result result) {
        if (!result.key.startsWith("end")) {
            now.results.computeIfAbsent(result.kind, kind -> new LongAdder()).increment();
        }
    }

    /** How many results there are. */
    public static long results() {
        return now.results.values().stream().mapToLong(LongAdder::sum).sum();
    }

    /** All that was made until now is committed. */
    public static void committed() {
        now.endedNs = System.nanoTime();
    }

    /** The run is over: what it did. `about` is more JSON to stand in front. */
    public static String end(String about) throws InterruptedException {
        now.looking.interrupt();
        now.looking.join();
        StringJoiner counts = new StringJoiner(", ", "{", "}");
        now.results.forEach((kind, count) -> counts.add(String.format(Locale.ROOT, "\"%s\": %d", kind, count.sum())));
        return String.format(
                Locale.ROOT,
                "{%s, \"java\": \"%s\", \"began_ns\": %d, \"ended_ns\": %d, \"marks\": %s, \"counts\": %s}",
                about, System.getProperty("java.version"), now.beganNs, now.endedNs, now.marks, counts);
    }

    private void look() {
        long last = -1;
        boolean goesOn = true;
        while (goesOn) {
            try {
                Thread.sleep(LOOK_EVERY_MS);
            } catch (InterruptedException over) {
                goesOn = false; // and look once more
            }
            long taken = this.taken.sum();
            if (taken != last) {
                marks.add("[" + System.nanoTime() + ", " + taken + "]");
                last = taken;
            }
        }
    }
}
