package orders;

import com.fasterxml.jackson.core.JsonFactory;
import com.fasterxml.jackson.core.JsonParser;
import com.fasterxml.jackson.core.JsonToken;
import java.io.DataInput;
import java.io.DataOutput;
import java.io.IOException;

/** What happened to an order, as a line or a record tells it; it is never changed once it is read. Times are microseconds. */
public class Event {
    private static final JsonFactory JSON = new JsonFactory();

    public String id;
    public String key;
    public long seq;
    public String kind;
    public long ts;
    public long deliverAt;

    /** For whoever reads it field by field. */
    public Event() {}

    public static Event of(String line) throws IOException {
        try (JsonParser parser = JSON.createParser(line)) {
            return of(parser);
        }
    }

    public static Event of(byte[] value) throws IOException {
        try (JsonParser parser = JSON.createParser(value)) {
            return of(parser);
        }
    }

    private static Event of(JsonParser parser) throws IOException {
        Event event = new Event();
        parser.nextToken();
        while (parser.nextToken() == JsonToken.FIELD_NAME) {
            String name = parser.currentName();
            parser.nextToken();
            switch (name) {
                case "id" -> event.id = parser.getText();
                case "key" -> event.key = parser.getText();
                case "seq" -> event.seq = parser.getLongValue();
                case "kind" -> event.kind = parser.getText();
                case "ts" -> event.ts = Times.us(parser.getText());
                case "deliver_at" -> event.deliverAt = Times.us(parser.getText());
                default -> parser.skipChildren();
            }
        }
        return event;
    }

    public void write(DataOutput out) throws IOException {
        out.writeUTF(id);
        out.writeUTF(key);
        out.writeLong(seq);
        out.writeUTF(kind);
        out.writeLong(ts);
        out.writeLong(deliverAt);
    }

    public static Event read(DataInput in) throws IOException {
        Event event = new Event();
        event.id = in.readUTF();
        event.key = in.readUTF();
        event.seq = in.readLong();
        event.kind = in.readUTF();
        event.ts = in.readLong();
        event.deliverAt = in.readLong();
        return event;
    }
}
