package flink;

import java.io.IOException;
import orders.Order;
import org.apache.flink.api.common.typeutils.SimpleTypeSerializerSnapshot;
import org.apache.flink.api.common.typeutils.TypeSerializerSnapshot;
import org.apache.flink.api.common.typeutils.base.TypeSerializerSingleton;
import org.apache.flink.core.memory.DataInputView;
import org.apache.flink.core.memory.DataOutputView;

/** An order as Flink keeps it: in its own few bytes, which is quicker than field by field by reflection. */
public final class OrderSerializer extends TypeSerializerSingleton<Order> {
    @Override
    public boolean isImmutableType() {
        return false;
    }

    @Override
    public Order createInstance() {
        return new Order();
    }

    @Override
    public Order copy(Order from) {
        return from.copy();
    }

    @Override
    public Order copy(Order from, Order reuse) {
        return from.copy();
    }

    @Override
    public int getLength() {
        return -1; // it differs
    }

    @Override
    public void serialize(Order order, DataOutputView out) throws IOException {
        order.write(out);
    }

    @Override
    public Order deserialize(DataInputView in) throws IOException {
        return Order.read(in);
    }

    @Override
    public Order deserialize(Order reuse, DataInputView in) throws IOException {
        return Order.read(in);
    }

    @Override
    public void copy(DataInputView in, DataOutputView out) throws IOException {
        Order.read(in).write(out);
    }

    @Override
    public TypeSerializerSnapshot<Order> snapshotConfiguration() {
        return new Snapshot();
    }

    /** What a checkpoint says of the form: there is one. */
    public static final class Snapshot extends SimpleTypeSerializerSnapshot<Order> {
        public Snapshot() {
            super(OrderSerializer::new);
        }
    }
}
