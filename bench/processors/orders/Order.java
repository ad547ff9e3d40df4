package orders;

import java.io.DataInput;
import java.io.DataOutput;
import java.io.IOException;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.List;
import java.util.function.Consumer;

/**
 * All that is known of one order, and the rules: its events in the order of their numbers, each once; delivered when the time
 * that they name has come; `paid` within a minute of `created`.
 *
 * <p>Rule 1: here is no Flink and no Kafka: whoever keeps an order calls take and wake, and wakes it at dueMs.
 *
 * <p>Rule 2: time is what the events say. A watermark is milliseconds; what is due at a microsecond is due at the first
 * millisecond that is not before.
 */
public final class Order {
    /** When nothing is due. */
    public static final long NEVER = Long.MAX_VALUE;

    private static final long WAIT_US = 120_000_000L;
    private static final long WITHIN_US = 60_000_000L;

    /** When it will be woken, as its keeper noted. */
    public long alarmMs = NEVER;

    private long next = 1;
    private long payBy = NEVER;
    private String created = "";
    private final List<Event> behindGap; // by number
    private final List<Event> held; // until they are to be delivered

    public Order() {
        this(new ArrayList<>(2), new ArrayList<>(4));
    }

    private Order(List<Event> behindGap, List<Event> held) {
        this.behindGap = behindGap;
        this.held = held;
    }

    /** An event came. */
    public void take(Event event, long watermarkMs, Consumer<Result> out) {
        if (ms(event.ts) < watermarkMs) {
            out.accept(new Result("late", event.key, "late", event.ts, watermarkMs, event.id, event));
            return;
        }
        if (event.seq < next || isBehindGap(event.seq)) {
            return; // it was here before
        }
        if (event.seq > next) {
            behindGap.add(event);
            behindGap.sort(Comparator.comparingLong(held -> held.seq));
            return;
        }
        release(event, watermarkMs, out);
        follow(watermarkMs, out);
    }

    /** Time has come to `nowMs`. */
    public void wake(long nowMs, Consumer<Result> out) {
        giveUp(nowMs, out);
        deliver(nowMs, out);
        if (ms(payBy) <= nowMs && !mayBePaidYet()) {
            String key = created.substring(0, created.indexOf('-'));
            out.accept(new Result("expired", key, "unpaid", payBy, nowMs, created, null));
            payBy = NEVER;
        }
    }

    /** When it wants to be woken next. */
    public long dueMs() {
        long due = mayBePaidYet() ? NEVER : payBy;
        for (Event event : behindGap) {
            due = Math.min(due, event.ts + WAIT_US);
        }
        for (Event event : held) {
            due = Math.min(due, event.deliverAt);
        }
        return ms(due);
    }

    private boolean isBehindGap(long seq) {
        for (Event event : behindGap) {
            if (event.seq == seq) {
                return true;
            }
        }
        return false;
    }

    private void follow(long watermarkMs, Consumer<Result> out) {
        while (!behindGap.isEmpty() && behindGap.get(0).seq == next) {
            release(behindGap.remove(0), watermarkMs, out);
        }
    }

    /** What is missing in front of an event that has waited long enough is skipped. */
    private void giveUp(long nowMs, Consumer<Result> out) {
        long upTo = 0;
        for (Event event : behindGap) {
            upTo = ms(event.ts + WAIT_US) <= nowMs ? event.seq : upTo;
        }
        while (!behindGap.isEmpty() && behindGap.get(0).seq <= upTo) {
            Event event = behindGap.remove(0);
            if (event.seq > next) {
                out.accept(new Result("gap", event.key, "skip", event.ts + WAIT_US, nowMs, event.id, null));
            }
            release(event, nowMs, out);
        }
        follow(nowMs, out);
    }

    private void release(Event event, long watermarkMs, Consumer<Result> out) {
        next = event.seq + 1;
        if (event.kind.equals("created")) {
            payBy = event.ts + WITHIN_US;
            created = event.id;
        } else if (event.kind.equals("paid") && payBy != NEVER && event.ts < payBy) {
            out.accept(new Result("met", event.key, "unpaid", payBy, watermarkMs, created, null));
            payBy = NEVER;
        }
        if (ms(event.deliverAt) <= watermarkMs) {
            out.accept(delivered(event, watermarkMs));
        } else {
            held.add(event);
        }
    }

    private void deliver(long nowMs, Consumer<Result> out) {
        held.sort(Comparator.comparingLong(event -> event.deliverAt));
        while (!held.isEmpty() && ms(held.get(0).deliverAt) <= nowMs) {
            out.accept(delivered(held.remove(0), nowMs));
        }
    }

    private static Result delivered(Event event, long watermarkMs) {
        return new Result("event", event.key, "deliver_at", event.deliverAt, watermarkMs, event.id, event);
    }

    /** Whether something waits behind a gap that happened before the deadline. */
    private boolean mayBePaidYet() {
        for (Event event : behindGap) {
            if (event.ts < payBy) {
                return true;
            }
        }
        return false;
    }

    private static long ms(long us) {
        return us == NEVER ? NEVER : -Math.floorDiv(-us, 1000);
    }

    /** Another one that is changed by itself. */
    public Order copy() {
        Order other = new Order(new ArrayList<>(behindGap), new ArrayList<>(held));
        other.alarmMs = alarmMs;
        other.next = next;
        other.payBy = payBy;
        other.created = created;
        return other;
    }

    public void write(DataOutput out) throws IOException {
        out.writeLong(alarmMs);
        out.writeLong(next);
        out.writeLong(payBy);
        out.writeUTF(created);
        for (List<Event> events : List.of(behindGap, held)) {
            out.writeInt(events.size());
            for (Event event : events) {
                event.write(out);
            }
        }
    }

    public static Order read(DataInput in) throws IOException {
        Order order = new Order();
        order.alarmMs = in.readLong();
        order.next = in.readLong();
        order.payBy = in.readLong();
        order.created = in.readUTF();
        for (List<Event> events : List.of(order.behindGap, order.held)) {
            for (int left = in.readInt(); left > 0; left--) {
                events.add(Event.read(in));
            }
        }
        return order;
    }
}
