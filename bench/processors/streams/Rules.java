package streams;

import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import orders.Event;
import orders.Order;
import orders.Result;
import orders.Tally;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.processor.PunctuationType;
import org.apache.kafka.streams.processor.api.Processor;
import org.apache.kafka.streams.processor.api.ProcessorContext;
import org.apache.kafka.streams.processor.api.Record;
import org.apache.kafka.streams.state.KeyValueIterator;
import org.apache.kafka.streams.state.KeyValueStore;

/**
 * Keeps the orders in a store, and in a second one when each is to be woken: Kafka Streams has no timer for a key.
 *
 * <p>Rule 1: what is due is looked for whenever stream time has moved on by ten seconds: the alarms are in the order of their
 * times, and are read from where the last look ended.
 */
final class Rules implements Processor<String, Event, String, Result> {
    static final String ORDERS = "orders";
    static final String ALARMS = "alarms";
    private static final Duration LOOK_EVERY = Duration.ofSeconds(10);
    private static final long BEHIND_MS = 120_000;
    private static final byte[] NOTHING = new byte[0];

    private ProcessorContext<String, Result> context;
    private KeyValueStore<String, Order> orders;
    private KeyValueStore<Bytes, byte[]> alarms;
    private long lookedMs; // nothing that is due before is left

    @Override
    public void init(ProcessorContext<String, Result> context) {
        this.context = context;
        orders = context.getStateStore(ORDERS);
        alarms = context.getStateStore(ALARMS);
        context.schedule(LOOK_EVERY, PunctuationType.STREAM_TIME, this::look);
    }

    @Override
    public void process(Record<String, Event> record) {
        Tally.take();
        Order order = orders.get(record.key());
        if (order == null) {
            order = new Order();
        }
        order.take(record.value(), context.currentStreamTimeMs() - BEHIND_MS, this::forward);
        keep(record.key(), order);
    }

    private void look(long streamMs) {
        long nowMs = streamMs - BEHIND_MS;
        if (nowMs <= lookedMs) {
            return;
        }
        for (Bytes alarm : due(nowMs)) {
            String key = keyOf(alarm);
            Order order = orders.get(key);
            alarms.delete(alarm);
            order.alarmMs = Order.NEVER;
            order.wake(nowMs, this::forward);
            keep(key, order);
        }
        lookedMs = nowMs;
    }

    private List<Bytes> due(long nowMs) {
        List<Bytes> due = new ArrayList<>();
        try (KeyValueIterator<Bytes, byte[]> found = alarms.range(alarm(lookedMs, ""), alarm(nowMs + 1, ""))) {
            while (found.hasNext()) {
                KeyValue<Bytes, byte[]> next = found.next();
                due.add(next.key);
            }
        }
        return due;
    }

    private void keep(String key, Order order) {
        long due = order.dueMs();
        if (due != order.alarmMs) {
            if (order.alarmMs != Order.NEVER) {
                alarms.delete(alarm(order.alarmMs, key));
            }
            if (due != Order.NEVER) {
                alarms.put(alarm(due, key), NOTHING);
                lookedMs = Math.min(lookedMs, due);
            }
            order.alarmMs = due;
        }
        orders.put(key, order);
    }

    private void forward(Result result) {
        Tally.made(result);
        context.forward(new Record<>(result.key, result, context.currentStreamTimeMs()));
    }

    private static Bytes alarm(long ms, String key) {
        byte[] text = key.getBytes(StandardCharsets.UTF_8);
        return Bytes.wrap(ByteBuffer.allocate(Long.BYTES + text.length).putLong(ms).put(text).array());
    }

    private static String keyOf(Bytes alarm) {
        byte[] bytes = alarm.get();
        return new String(bytes, Long.BYTES, bytes.length - Long.BYTES, StandardCharsets.UTF_8);
    }
}
