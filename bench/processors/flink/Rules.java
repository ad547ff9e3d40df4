package flink;

import java.util.function.Consumer;
import orders.Event;
import orders.Order;
import orders.Result;
import orders.Tally;
import org.apache.flink.api.common.functions.OpenContext;
import org.apache.flink.api.common.state.ValueState;
import org.apache.flink.api.common.state.ValueStateDescriptor;
import org.apache.flink.streaming.api.TimerService;
import org.apache.flink.streaming.api.functions.KeyedProcessFunction;
import org.apache.flink.util.Collector;

/** Keeps the orders in Flink's state, one value and at most one timer of event time for each. */
final class Rules extends KeyedProcessFunction<String, Event, Result> {
    private transient ValueState<Order> orders;

    @Override
    public void open(OpenContext context) {
        orders = getRuntimeContext().getState(new ValueStateDescriptor<>("order", new OrderSerializer()));
    }

    @Override
    public void processElement(Event event, Context context, Collector<Result> out) throws Exception {
        Tally.take();
        Order order = orders.value();
        if (order == null) {
            order = new Order();
        }
        order.take(event, context.timerService().currentWatermark(), out::collect);
        keep(order, context.timerService());
    }

    @Override
    public void onTimer(long timestamp, OnTimerContext context, Collector<Result> out) throws Exception {
        Order order = orders.value();
        order.alarmMs = Order.NEVER;
        Consumer<Result> collect = out::collect;
        order.wake(timestamp, collect);
        keep(order, context.timerService());
    }

    private void keep(Order order, TimerService timers) throws Exception {
        long due = order.dueMs();
        if (due != order.alarmMs) {
            if (order.alarmMs != Order.NEVER) {
                timers.deleteEventTimeTimer(order.alarmMs);
            }
            if (due != Order.NEVER) {
                timers.registerEventTimeTimer(due);
            }
            order.alarmMs = due;
        }
        orders.update(order);
    }
}
