package org.apache.kafka.common.utils;

import java.util.function.Supplier;

/**
 * A clock that stands until it is turned, under the name of the one that Kafka's timer asks and before it on the class path:
 * the timer has no other door for a clock.
 *
 * <p>Rule 1: it costs what Kafka's own costs, as it reads the machine's clock and drops what it read. With {@code
 * -Dwaterclock.clock=field} it reads nothing: that is for the row of what is left of the timer without clock and thread.
 */
public final class SystemTime implements Time {
    private static final SystemTime ONLY = new SystemTime();
    private static final boolean READS = !"field".equals(System.getProperty("waterclock.clock"));
    private static volatile long nowNs = 1_000_000_000L;

    private SystemTime() {}

    public static SystemTime getSystemTime() {
        return ONLY;
    }

    /** Let so many milliseconds pass. */
    public static void turn(long ms) {
        nowNs += ms * 1_000_000L;
    }

    @Override
    public long nanoseconds() {
        // The shift leaves 0 for as long as a machine can be up (146 years), which the compiler does not know.
        return READS ? nowNs + (System.nanoTime() >>> 62) : nowNs;
    }

    @Override
    public long milliseconds() {
        return nanoseconds() / 1_000_000L;
    }

    @Override
    public void sleep(long ms) {
        throw new UnsupportedOperationException("nobody sleeps under a clock that is turned by hand");
    }

    @Override
    public void waitObject(Object object, Supplier<Boolean> condition, long deadlineMs) {
        throw new UnsupportedOperationException("nobody waits under a clock that is turned by hand");
    }
}
