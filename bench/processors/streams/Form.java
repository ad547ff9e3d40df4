package streams;

import com.fasterxml.jackson.core.JsonFactory;
import com.fasterxml.jackson.core.JsonGenerator;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.IOException;
import java.io.UncheckedIOException;
import orders.Event;
import orders.Order;
import orders.Result;
import orders.Times;
import org.apache.kafka.common.serialization.Deserializer;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.serialization.Serializer;

/** Events, orders and results as bytes. A result is the JSON object that waterclock's sink of topics writes. */
final class Form {
    static final Serde<Order> ORDER = Serdes.serdeFrom((topic, order) -> bytes(order), (topic, bytes) -> order(bytes));
    static final Deserializer<Event> EVENT = (topic, bytes) -> event(bytes);
    static final Serializer<Result> RESULT = (topic, result) -> json(result);
    private static final JsonFactory JSON = new JsonFactory();

    private Form() {}

    private static Event event(byte[] bytes) {
        try {
            return Event.of(bytes);
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
    }

    private static byte[] bytes(Order order) {
        if (order == null) {
            return null;
        }
        ByteArrayOutputStream bytes = new ByteArrayOutputStream(256);
        try (DataOutputStream out = new DataOutputStream(bytes)) {
            order.write(out);
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
        return bytes.toByteArray();
    }

    private static Order order(byte[] bytes) {
        if (bytes == null) {
            return null;
        }
        try {
            return Order.read(new DataInputStream(new ByteArrayInputStream(bytes)));
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
    }

    private static byte[] json(Result result) {
        ByteArrayOutputStream bytes = new ByteArrayOutputStream(400);
        try (JsonGenerator json = JSON.createGenerator(bytes)) {
            json.writeStartObject();
            json.writeStringField("kind", result.kind);
            json.writeStringField("key", result.key);
            json.writeStringField("rule", result.rule);
            json.writeStringField("due", text(result.due));
            json.writeStringField("emitted_at", result.wasBeforeTheEnd() ? text(result.emittedAtMs * 1000) : null);
            json.writeStringField("source_id", result.sourceId);
            json.writeStringField("result_id", result.id());
            write(json, result.event);
            json.writeEndObject();
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
        return bytes.toByteArray();
    }

    private static void write(JsonGenerator json, Event event) throws IOException {
        json.writeStringField("event_id", event == null ? null : event.id);
        json.writeStringField("event_key", event == null ? null : event.key);
        if (event == null) {
            json.writeNullField("event_seq");
        } else {
            json.writeNumberField("event_seq", event.seq);
        }
        json.writeStringField("event_kind", event == null ? null : event.kind);
        json.writeStringField("event_ts", event == null ? null : text(event.ts));
        json.writeStringField("event_deliver_at", event == null ? null : text(event.deliverAt));
    }

    private static String text(long us) {
        return Times.text(us, 'T', "Z");
    }
}
