import io.netty.util.HashedWheelTimer;
import io.netty.util.Timeout;
import io.netty.util.Version;
import java.util.Arrays;
import java.util.Locale;
import java.util.Random;
import java.util.StringJoiner;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.DelayQueue;
import java.util.concurrent.Delayed;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.ScheduledThreadPoolExecutor;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.function.Supplier;

/**
 * The verbs of bench/timers/verbs.py, done by the heaps that Java programs have, and by Netty's wheel; one line of JSON.
 *
 * <pre>
 * HeapVerbs verbs KIND DELAYS CHURNED TIMES CANCELS    CPU ns an operation by verb; CANCELS: no leaves out what a search costs
 * HeapVerbs order KIND DELAYS CANCELLED                which timers ran, by number, in the order they ran
 * </pre>
 *
 * <p>Rule 1: each is used through its public face, as its documentation shows, with one thread.
 *
 * <p>Rule 2: only a DelayQueue's clock can be turned. The others go by the machine's: what is added, cancelled and churned is due
 * an hour later than asked for, so that nothing runs meanwhile; what is to expire is due within a window of up to a second, by the
 * logarithm of its delay. The thread of Timer and the executors is held until all are due; Netty's works all the time.
 *
 * <p>Rule 3: expire is the CPU of the thread that runs what is due. Netty's places timers too, which others pay when they add.
 *
 * <p>Rule 4: the JVM is warm before anything is timed. Here nothing is judged: how many ran is told, and judged in Python.
 */
public final class HeapVerbs {
    private static final long HOUR_MS = 3_600_000;
    private static final int WARM = 10;
    private static final int WARM_TIMERS = 100_000;
    private static final int WARM_WINDOW_MS = 50;
    private static final int SEARCHED = 1_000;
    private static final long GRAIN_NS = 1_000_000;
    private static final long HEAD_START_NS = 3_000 * GRAIN_NS;

    private final String kind;
    private final Cost add;
    private final Cost churn;
    private final Cost cancel;
    private final Cost expire;
    private long ran;
    private long ranEarly;

    private HeapVerbs(String kind, Supplier<Cost> cost) {
        this.kind = kind;
        add = cost.get();
        churn = cost.get();
        cancel = cost.get();
        expire = cost.get();
    }

    public static void main(String[] arguments) throws Exception {
        String kind = arguments[1];
        int[] delays = Cost.numbers(arguments[2]);
        if (arguments[0].equals("order")) {
            System.out.println(order(kind, delays, Cost.numbers(arguments[3])));
            return;
        }
        boolean cancels = arguments[5].equals("yes");
        warm(kind);
        HeapVerbs verbs = new HeapVerbs(kind, Cost::new);
        int churned = Integer.parseInt(arguments[3]);
        for (int times = Integer.parseInt(arguments[4]); times > 0; times--) {
            verbs.once(delays, cancels ? churned : 0, Math.max(20, Math.min(1_000, delays.length / 100)));
        }
        System.out.println(verbs.json(cancels));
    }

    private static void warm(String kind) throws Exception {
        Random random = new Random(7);
        HeapVerbs verbs = new HeapVerbs(kind, () -> Cost.NONE);
        boolean searches = kind.equals("queue");
        for (int round = 0; round < WARM; round++) {
            verbs.once(drawn(random, WARM_TIMERS), searches ? 0 : WARM_TIMERS, WARM_WINDOW_MS);
            verbs.once(drawn(random, SEARCHED), SEARCHED, 1);
        }
    }

    private static int[] drawn(Random random, int size) {
        return random.doubles(size, 0, Math.log(HOUR_MS)).mapToInt(x -> (int) Math.exp(x)).toArray();
    }

    private void once(int[] delays, int churned, int windowMs) throws Exception {
        int size = delays.length;
        Object[] tickets = new Object[size];
        Keeper later = keeper(kind);
        add.add(() -> later.addAll(delays, tickets), size, size);
        if (churned > 0) {
            Cost.shuffle(tickets, size);
            churn.add(() -> later.churn(delays, tickets, churned), churned, size);
            cancel.add(() -> later.cancelAll(tickets), size, size);
        }
        Arrays.fill(tickets, null);
        ranEarly += later.ran.get();
        later.close();
        expire(delays, windowMs);
    }

    private void expire(int[] delays, int windowMs) throws Exception {
        Keeper keeper = keeper(kind);
        long[] due = new long[delays.length];
        for (int place = 0; place < due.length; place++) {
            due[place] = (long) (windowMs * Math.log(delays[place]) / Math.log(HOUR_MS));
        }
        keeper.hold();
        if (keeper.worksAllTheTime()) {
            expire.addOf(keeper.thread, () -> keeper.addAndSettle(due), due.length, due.length);
        } else {
            keeper.addDue(due);
            Thread.sleep(windowMs + 5);
            expire.addOf(keeper.thread, () -> keeper.settle(due.length), due.length, due.length);
        }
        ran += keeper.ran.get();
        keeper.close();
    }

    private String json(boolean cancels) {
        return String.format(
                Locale.ROOT,
                "{\"netty\": \"%s\", \"java\": \"%s\", \"ran\": %d, \"ran_cancelled\": %d, \"thread\": %s, \"process\": %s}",
                netty(), System.getProperty("java.version"), ran, ranEarly,
                byVerb(cancels, Cost::threadNsAnOperation), byVerb(cancels, Cost::processNsAnOperation));
    }

    private String byVerb(boolean cancels, java.util.function.ToDoubleFunction<Cost> ns) {
        StringJoiner verbs = new StringJoiner(", ", "{", "}");
        verbs.add(verb("add", ns.applyAsDouble(add)));
        if (cancels) {
            verbs.add(verb("churn", ns.applyAsDouble(churn)));
            verbs.add(verb("cancel", ns.applyAsDouble(cancel)));
        }
        return verbs.add(verb("expire", ns.applyAsDouble(expire))).toString();
    }

    private static String verb(String name, double ns) {
        return String.format(Locale.ROOT, "\"%s\": %.2f", name, ns);
    }

    private static String netty() {
        Version version = Version.identify().get("netty-common");
        return version == null ? "unknown" : version.artifactVersion();
    }

    private static String order(String kind, int[] delays, int[] cancelled) throws Exception {
        Keeper keeper = keeper(kind);
        StringJoiner order = new StringJoiner(", ", "[", "]");
        AtomicInteger early = new AtomicInteger();
        Object[] timers = new Object[delays.length];
        // All from one moment, and none due before all are added: a machine that stands still meanwhile changes no order.
        long start = System.nanoTime() + HEAD_START_NS;
        for (int number = 0; number < delays.length; number++) {
            int me = number;
            long due = start + delays[number] * 1_000_000L;
            timers[number] = addAt(keeper, due, () -> {
                order.add(Integer.toString(me));
                if (System.nanoTime() < due - GRAIN_NS) {
                    early.incrementAndGet();
                }
                keeper.count();
            });
        }
        for (int number : cancelled) {
            keeper.cancel(timers[number]);
        }
        keeper.settleInTime(delays.length - cancelled.length);
        Thread.sleep(50); // one too many would have come by then
        keeper.close();
        return String.format(Locale.ROOT, "{\"ran\": %d, \"early\": %d, \"order\": %s}", keeper.ran.get(), early.get(), order);
    }

    /** At that moment; what took so long that it may be late is cancelled, and added again. */
    private static Object addAt(Keeper keeper, long due, Runnable callback) {
        while (true) {
            long before = System.nanoTime();
            Object timer = keeper.add((due - before + GRAIN_NS - 1) / GRAIN_NS, callback);
            if (System.nanoTime() - before < 5 * GRAIN_NS) {
                return timer;
            }
            keeper.cancel(timer);
        }
    }

    private static Keeper keeper(String kind) {
        switch (kind) {
            case "timer":
                return new Timers();
            case "executor":
                return new Executor(false);
            case "executor-removes":
                return new Executor(true);
            case "queue":
                return new Queue();
            case "netty":
                return new Netty();
            default:
                throw new IllegalArgumentException(kind);
        }
    }

    /** One of them; `thread` runs what is due. */
    private abstract static class Keeper {
        final AtomicInteger ran = new AtomicInteger();
        final CountDownLatch gate = new CountDownLatch(1);
        long thread = Thread.currentThread().getId();

        abstract Object add(long delayMs, Runnable callback);

        abstract void cancel(Object ticket);

        abstract void close();

        boolean worksAllTheTime() {
            return false;
        }

        /** Only one thread runs callbacks. */
        void count() {
            ran.lazySet(ran.getPlain() + 1);
        }

        void addAll(int[] delays, Object[] tickets) {
            Runnable callback = this::count;
            for (int place = 0; place < delays.length; place++) {
                tickets[place] = add(HOUR_MS + delays[place], callback);
            }
        }

        void churn(int[] delays, Object[] tickets, int churned) {
            Runnable callback = this::count;
            for (int place = 0; place < churned; place++) {
                cancel(tickets[place]);
                tickets[place] = add(HOUR_MS + delays[place], callback);
            }
        }

        void cancelAll(Object[] tickets) {
            for (Object ticket : tickets) {
                cancel(ticket);
            }
        }

        void addDue(long[] due) {
            Runnable callback = this::count;
            for (long delay : due) {
                add(delay, callback);
            }
        }

        void addAndSettle(long[] due) {
            addDue(due);
            settle(due.length);
        }

        /** Keep its thread from running what is due, and learn which one it is. */
        void hold() throws InterruptedException {
            CountDownLatch begun = new CountDownLatch(1);
            add(0, () -> {
                thread = Thread.currentThread().getId();
                begun.countDown();
                if (!worksAllTheTime()) {
                    await(gate);
                }
            });
            begun.await();
        }

        /** Let it run; until so many have, or ten seconds are over where some are missing. */
        void settle(int expected) {
            gate.countDown();
            for (int ms = 0; ran.get() < expected && ms < 10_000; ms++) {
                pause();
            }
        }

        /** The same by the machine's clock, where `settle` would turn it. */
        void settleInTime(int expected) {
            settle(expected);
        }

        private static void await(CountDownLatch latch) {
            try {
                latch.await();
            } catch (InterruptedException e) {
                throw new IllegalStateException(e);
            }
        }

        private static void pause() {
            try {
                Thread.sleep(1);
            } catch (InterruptedException e) {
                throw new IllegalStateException(e);
            }
        }
    }

    private static final class Timers extends Keeper {
        private final java.util.Timer timer = new java.util.Timer(true);

        @Override
        Object add(long delayMs, Runnable callback) {
            java.util.TimerTask task = new java.util.TimerTask() {
                @Override
                public void run() {
                    callback.run();
                }
            };
            timer.schedule(task, delayMs);
            return task;
        }

        @Override
        void cancel(Object ticket) {
            ((java.util.TimerTask) ticket).cancel();
        }

        @Override
        void close() {
            timer.cancel();
        }
    }

    private static final class Executor extends Keeper {
        private final ScheduledThreadPoolExecutor executor = new ScheduledThreadPoolExecutor(1);

        Executor(boolean removes) {
            executor.setRemoveOnCancelPolicy(removes);
        }

        @Override
        Object add(long delayMs, Runnable callback) {
            return executor.schedule(callback, delayMs, TimeUnit.MILLISECONDS);
        }

        @Override
        void cancel(Object ticket) {
            ((Future<?>) ticket).cancel(false);
        }

        @Override
        void close() {
            executor.shutdownNow();
        }
    }

    /** A DelayQueue, whose entries are asked for their delay, so that the clock is ours; what is due is polled. */
    private static final class Queue extends Keeper {
        private final DelayQueue<Entry> queue = new DelayQueue<>();
        private long turnedNs;

        @Override
        Object add(long delayMs, Runnable callback) {
            Entry entry = new Entry(this, nowNs() + delayMs * 1_000_000L, callback);
            queue.offer(entry);
            return entry;
        }

        private long nowNs() {
            return turnedNs + System.nanoTime();
        }

        @Override
        void cancel(Object ticket) {
            queue.remove(ticket);
        }

        @Override
        void hold() {}

        @Override
        void settle(int expected) {
            turnedNs += 2 * HOUR_MS * 1_000_000L;
            for (Entry entry = queue.poll(); entry != null; entry = queue.poll()) {
                entry.callback.run();
            }
        }

        @Override
        void settleInTime(int expected) {
            try {
                for (Entry entry = queue.poll(10, TimeUnit.SECONDS); entry != null; ) {
                    entry.callback.run();
                    int waitMs = ran.get() < expected ? 10_000 : 50; // one too many would have come by then
                    entry = queue.poll(waitMs, TimeUnit.MILLISECONDS);
                }
            } catch (InterruptedException e) {
                throw new IllegalStateException(e);
            }
        }

        @Override
        void close() {
            queue.clear();
        }
    }

    private static final class Entry implements Delayed {
        private final Queue clock;
        private final long dueNs;
        private final Runnable callback;

        Entry(Queue clock, long dueNs, Runnable callback) {
            this.clock = clock;
            this.dueNs = dueNs;
            this.callback = callback;
        }

        @Override
        public long getDelay(TimeUnit unit) {
            return unit.convert(dueNs - clock.nowNs(), TimeUnit.NANOSECONDS);
        }

        @Override
        public int compareTo(Delayed other) {
            return Long.compare(dueNs, ((Entry) other).dueNs);
        }
    }

    /** Netty's wheel with a tick of 1 ms; its 512 buckets are what it has unless told otherwise. */
    private static final class Netty extends Keeper {
        private final HashedWheelTimer timer =
                new HashedWheelTimer(Executors.defaultThreadFactory(), 1, TimeUnit.MILLISECONDS, 512, false);

        @Override
        Object add(long delayMs, Runnable callback) {
            return timer.newTimeout(timeout -> callback.run(), delayMs, TimeUnit.MILLISECONDS);
        }

        @Override
        void cancel(Object ticket) {
            ((Timeout) ticket).cancel();
        }

        @Override
        boolean worksAllTheTime() {
            return true;
        }

        @Override
        void close() {
            timer.stop();
        }
    }
}
