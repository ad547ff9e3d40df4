package flink;

import orders.Result;
import orders.Tally;
import org.apache.flink.api.connector.sink2.Sink;
import org.apache.flink.api.connector.sink2.SinkWriter;
import org.apache.flink.api.connector.sink2.WriterInitContext;

/** Counts the results and keeps none: what the sink costs is the difference. */
final class ThrownAway implements Sink<Result> {
    @Override
    public SinkWriter<Result> createWriter(WriterInitContext context) {
        return new SinkWriter<>() {
            @Override
            public void write(Result result, Context context) {
                Tally.made(result);
            }

            @Override
            public void flush(boolean endOfInput) {
                Tally.committed();
            }

            @Override
            public void close() {}
        };
    }
}
