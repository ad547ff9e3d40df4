import java.lang.reflect.Field;
import java.util.Arrays;
import java.util.List;
import java.util.Locale;
import java.util.Random;
import java.util.StringJoiner;
import java.util.concurrent.AbstractExecutorService;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.function.Supplier;
import org.apache.kafka.common.utils.AppInfoParser;
import org.apache.kafka.common.utils.SystemTime;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.server.util.timer.SystemTimer;
import org.apache.kafka.server.util.timer.TimerTask;

/**
 * The verbs of bench/timers/verbs.py, done by Kafka's SystemTimer; the result is one line of JSON.
 *
 * <pre>
 * TimerVerbs verbs own|inline DELAYS CHURNED TIMES     CPU ns an operation by verb
 * TimerVerbs order own|inline DELAYS CANCELLED         which timers ran, by number, in the order they ran
 * </pre>
 *
 * <p>Rule 1: the timer is used through its public face, with its own tick of 1 ms and its own wheels of 20. Only the clock is
 * ours (turned/SystemTime.java), and it stands until it is turned past every deadline: nobody waits.
 *
 * <p>Rule 2: "own" is the timer as it stands, which hands what is due to its own thread; the calling thread pays for the
 * handing over. "inline" puts an executor in its place that calls at once.
 *
 * <p>Rule 3: the JVM is warm: WARM times through all verbs with 100,000 other delays, before anything is timed.
 *
 * <p>Rule 4: here nothing is judged. How many ran is told, and judged in Python.
 */
public final class TimerVerbs {
    private static final long TWO_HOURS_MS = 2 * 3_600_000L;
    private static final int WARM = 20;
    private static final int WARM_TIMERS = 100_000;

    private final boolean inline;
    private final Cost add;
    private final Cost churn;
    private final Cost cancel;
    private final Cost expire;
    private long ranCancelled;
    private long ran;

    private TimerVerbs(String executor, Supplier<Cost> cost) {
        inline = executor.equals("inline");
        add = cost.get();
        churn = cost.get();
        cancel = cost.get();
        expire = cost.get();
    }

    public static void main(String[] arguments) throws Exception {
        int[] delays = Cost.numbers(arguments[2]);
        if (arguments[0].equals("order")) {
            System.out.println(order(arguments[1].equals("inline"), delays, Cost.numbers(arguments[3])));
            return;
        }
        warm(arguments[1]);
        TimerVerbs verbs = new TimerVerbs(arguments[1], Cost::new);
        int churned = Integer.parseInt(arguments[3]);
        for (int times = Integer.parseInt(arguments[4]); times > 0; times--) {
            verbs.once(delays, churned);
        }
        System.out.println(verbs.json());
    }

    private static void warm(String executor) throws Exception {
        Random random = new Random(7);
        TimerVerbs verbs = new TimerVerbs(executor, () -> Cost.NONE);
        for (int round = 0; round < WARM; round++) {
            int[] delays = random.doubles(WARM_TIMERS, 0, Math.log(3_600_000)).mapToInt(x -> (int) Math.exp(x)).toArray();
            verbs.once(delays, WARM_TIMERS);
        }
    }

    private void once(int[] delays, int churned) throws Exception {
        int size = delays.length;
        Ticket[] tickets = new Ticket[size];
        Keeper keeper = new Keeper(inline);
        add.add(() -> keeper.addAll(delays, tickets), size, size);
        Cost.shuffle(tickets, size);
        churn.add(() -> keeper.churn(delays, tickets, churned), churned, size);
        cancel.add(() -> cancelAll(tickets), size, size);
        Arrays.fill(tickets, null);
        keeper.expire();
        ranCancelled += keeper.settled(0);
        keeper.addAll(delays, tickets);
        Arrays.fill(tickets, null);
        expire.add(keeper::expire, size, size);
        ran += keeper.settled(size);
        keeper.close();
    }

    private static void cancelAll(Ticket[] tickets) {
        for (Ticket ticket : tickets) {
            ticket.cancel();
        }
    }

    private String json() {
        return String.format(
                Locale.ROOT,
                "{\"kafka\": \"%s\", \"java\": \"%s\", \"ran\": %d, \"ran_cancelled\": %d, \"thread\": %s, \"process\": %s}",
                AppInfoParser.getVersion(), System.getProperty("java.version"), ran, ranCancelled,
                byVerb(add.threadNsAnOperation(), churn.threadNsAnOperation(), cancel.threadNsAnOperation(),
                        expire.threadNsAnOperation()),
                byVerb(add.processNsAnOperation(), churn.processNsAnOperation(), cancel.processNsAnOperation(),
                        expire.processNsAnOperation()));
    }

    private static String byVerb(double add, double churn, double cancel, double expire) {
        return String.format(
                Locale.ROOT, "{\"add\": %.2f, \"churn\": %.2f, \"cancel\": %.2f, \"expire\": %.2f}", add, churn, cancel, expire);
    }

    private static String order(boolean inline, int[] delays, int[] cancelled) throws Exception {
        Keeper keeper = new Keeper(inline);
        StringJoiner order = new StringJoiner(", ", "[", "]");
        TimerTask[] timers = new TimerTask[delays.length];
        for (int number = 0; number < delays.length; number++) {
            timers[number] = keeper.add(new Numbered(delays[number], number, order, keeper.ran));
        }
        for (int number : cancelled) {
            timers[number].cancel();
        }
        keeper.expire();
        int ran = keeper.settled(delays.length - cancelled.length);
        keeper.close();
        return String.format(Locale.ROOT, "{\"kafka\": \"%s\", \"ran\": %d, \"early\": %d, \"order\": %s}",
                AppInfoParser.getVersion(), ran, early(delays), order);
    }

    /** How many ran before their deadline when the clock is turned millisecond by millisecond through the first second. */
    private static int early(int[] delays) throws Exception {
        Keeper keeper = new Keeper(true);
        AtomicInteger early = new AtomicInteger();
        for (int delay : delays) {
            keeper.add(new Punctual(delay, early));
        }
        for (int ms = 0; ms < 1_000; ms++) {
            SystemTime.turn(1);
            keeper.turn();
        }
        keeper.expire();
        keeper.close();
        return early.get();
    }

    /** One SystemTimer, and what counts the timers that ran. */
    private static final class Keeper {
        private final SystemTimer timer = new SystemTimer("bench");
        private final AtomicInteger ran = new AtomicInteger();

        Keeper(boolean inline) throws Exception {
            if (inline) {
                callInline(timer);
            }
            // Its thread starts with its first task: now, so that no phase pays for it.
            timer.add(new Ticket(1, ran));
            expire();
            settled(1);
        }

        TimerTask add(TimerTask task) {
            timer.add(task);
            return task;
        }

        void addAll(int[] delays, Ticket[] tickets) {
            for (int place = 0; place < delays.length; place++) {
                Ticket ticket = new Ticket(delays[place], ran);
                timer.add(ticket);
                tickets[place] = ticket;
            }
        }

        void churn(int[] delays, Ticket[] tickets, int churned) {
            for (int place = 0; place < churned; place++) {
                tickets[place].cancel();
                Ticket ticket = new Ticket(delays[place], ran);
                timer.add(ticket);
                tickets[place] = ticket;
            }
        }

        void expire() {
            SystemTime.turn(TWO_HOURS_MS);
            turn();
        }

        void turn() {
            try {
                timer.advanceClock(0);
            } catch (InterruptedException e) {
                throw new IllegalStateException(e);
            }
        }

        /** How many ran since the last time, once so many did or a moment is over; of ten seconds, where some are missing. */
        int settled(int expected) throws InterruptedException {
            Thread.sleep(expected == 0 ? 5 : 0);
            for (int ms = 0; ran.get() < expected && ms < 10_000; ms++) {
                Thread.sleep(1);
            }
            return ran.getAndSet(0);
        }

        void close() {
            timer.close();
        }
    }

    /** A timer whose callback counts; only one thread runs callbacks. */
    private static final class Ticket extends TimerTask {
        private final AtomicInteger ran;

        Ticket(long delayMs, AtomicInteger ran) {
            super(delayMs);
            this.ran = ran;
        }

        @Override
        public void run() {
            ran.lazySet(ran.getPlain() + 1);
        }
    }

    private static final class Numbered extends TimerTask {
        private final int number;
        private final StringJoiner order;
        private final AtomicInteger ran;

        Numbered(long delayMs, int number, StringJoiner order, AtomicInteger ran) {
            super(delayMs);
            this.number = number;
            this.order = order;
            this.ran = ran;
        }

        @Override
        public void run() {
            order.add(Integer.toString(number));
            ran.lazySet(ran.getPlain() + 1);
        }
    }

    private static final class Punctual extends TimerTask {
        private final long dueMs = Time.SYSTEM.hiResClockMs() + delayMs;
        private final AtomicInteger early;

        Punctual(long delayMs, AtomicInteger early) {
            super(delayMs);
            this.early = early;
        }

        @Override
        public void run() {
            if (Time.SYSTEM.hiResClockMs() < dueMs) {
                early.incrementAndGet();
            }
        }
    }

    /** The timer makes its executor itself, so another one can only be put in its place from outside. */
    private static void callInline(SystemTimer timer) throws ReflectiveOperationException {
        Field executor = SystemTimer.class.getDeclaredField("taskExecutor");
        executor.setAccessible(true);
        ((AbstractExecutorService) executor.get(timer)).shutdown();
        executor.set(timer, new Inline());
    }

    private static final class Inline extends AbstractExecutorService {
        @Override
        public Future<?> submit(Runnable task) {
            task.run();
            return null;
        }

        @Override
        public void execute(Runnable task) {
            task.run();
        }

        @Override
        public void shutdown() {}

        @Override
        public List<Runnable> shutdownNow() {
            return List.of();
        }

        @Override
        public boolean isShutdown() {
            return true;
        }

        @Override
        public boolean isTerminated() {
            return true;
        }

        @Override
        public boolean awaitTermination(long timeout, TimeUnit unit) {
            return true;
        }
    }
}
