import java.io.IOException;
import java.lang.management.ManagementFactory;
import java.lang.management.ThreadMXBean;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Random;

/**
 * What a phase cost, summed over its repetitions: CPU time of a thread, and of the whole process.
 *
 * <p>Rule 1: the collector has run before each phase, as for the contenders in Python. What it does within a phase is in the
 * process's time, and not in the thread's.
 *
 * <p>Rule 2: from COLD pending on, 128 MB are streamed before each phase.
 *
 * <p>Rule 3: a process's time comes in steps of 10 ms, so it says something about long phases only.
 */
class Cost {
    static final int COLD = 1_000_000;
    private static final ThreadMXBean THREAD = ManagementFactory.getThreadMXBean();
    private static final com.sun.management.OperatingSystemMXBean PROCESS =
            (com.sun.management.OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();
    private static byte[] stream = new byte[0];

    /** Runs a phase and measures nothing: for warming. */
    static final Cost NONE = new Cost() {
        @Override
        void add(Runnable phase, int operations, int pending) {
            phase.run();
        }

        @Override
        void addOf(long thread, Runnable phase, int operations, int pending) {
            phase.run();
        }
    };

    private long threadNs;
    private long processNs;
    private long operations;

    void add(Runnable phase, int operations, int pending) {
        if (pending >= COLD) {
            stream();
        }
        System.gc();
        long process = processNs();
        long thread = THREAD.getCurrentThreadCpuTime();
        phase.run();
        threadNs += THREAD.getCurrentThreadCpuTime() - thread;
        processNs += processNs() - process;
        this.operations += operations;
    }

    /** What the phase cost another thread, while this one runs it. */
    void addOf(long thread, Runnable phase, int operations, int pending) {
        if (pending >= COLD) {
            stream();
        }
        System.gc();
        long process = processNs();
        long before = THREAD.getThreadCpuTime(thread);
        phase.run();
        threadNs += THREAD.getThreadCpuTime(thread) - before;
        processNs += processNs() - process;
        this.operations += operations;
    }

    double threadNsAnOperation() {
        return (double) threadNs / operations;
    }

    double processNsAnOperation() {
        return (double) processNs / operations;
    }

    static long processNs() {
        return PROCESS.getProcessCpuTime();
    }

    /** Reads and writes 128 MB, so that no cache holds a timer. */
    private static void stream() {
        if (stream.length == 0) {
            stream = new byte[1 << 27];
        }
        for (int i = 0; i < stream.length; i++) {
            stream[i]++;
        }
    }

    /** The whole numbers of a file, as Python's array of C ints wrote them. */
    static int[] numbers(String file) throws IOException {
        ByteBuffer bytes = ByteBuffer.wrap(Files.readAllBytes(Path.of(file))).order(ByteOrder.nativeOrder());
        int[] numbers = new int[bytes.remaining() / Integer.BYTES];
        bytes.asIntBuffer().get(numbers);
        return numbers;
    }

    static void shuffle(Object[] things, long seed) {
        Random random = new Random(seed);
        for (int last = things.length - 1; last > 0; last--) {
            int other = random.nextInt(last + 1);
            Object thing = things[last];
            things[last] = things[other];
            things[other] = thing;
        }
    }
}
