package flink;

import java.io.IOException;
import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.PreparedStatement;
import java.sql.SQLException;
import java.sql.Statement;
import orders.Event;
import orders.Result;
import orders.Tally;
import orders.Times;
import org.apache.flink.api.connector.sink2.Sink;
import org.apache.flink.api.connector.sink2.SinkWriter;
import org.apache.flink.api.connector.sink2.WriterInitContext;

/**
 * The table that waterclock's own sink makes, with the same columns and texts; its commits wait for the disk in the same way.
 *
 * <p>Rule 1: one transaction a checkpoint. Flink has no place in it for its own mark, so after a crash the last one may be written
 * again: the id is the primary key, and what comes again takes the place of itself.
 */
final class SQLite implements Sink<Result> {
    private static final String COLUMNS = "batch_id INTEGER, kind TEXT, key TEXT, rule TEXT, due TEXT, emitted_at TEXT,"
            + " source_id TEXT, result_id TEXT PRIMARY KEY, event_id TEXT, event_key TEXT, event_seq INTEGER, event_kind TEXT,"
            + " event_ts TEXT, event_deliver_at TEXT";
    private final String file;

    SQLite(String file) {
        this.file = file;
    }

    @Override
    public SinkWriter<Result> createWriter(WriterInitContext context) throws IOException {
        try {
            return new Writer(file);
        } catch (SQLException error) {
            throw new IOException(error);
        }
    }

    private static final class Writer implements SinkWriter<Result> {
        private static final int AT_ONCE = 1000;
        private final Connection db;
        private final PreparedStatement insert;
        private int waiting;
        private int batch;

        Writer(String file) throws SQLException {
            db = DriverManager.getConnection("jdbc:sqlite:" + file);
            try (Statement statement = db.createStatement()) {
                statement.execute("PRAGMA journal_mode=WAL");
                statement.execute("PRAGMA synchronous=FULL");
                statement.execute("CREATE TABLE IF NOT EXISTS results (" + COLUMNS + ")");
            }
            db.setAutoCommit(false);
            insert = db.prepareStatement("INSERT OR REPLACE INTO results VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)");
        }

        @Override
        public void write(Result result, Context context) throws IOException {
            Tally.made(result);
            try {
                bind(result);
                bind(result.event);
                insert.addBatch();
                if (++waiting == AT_ONCE) {
                    execute();
                }
            } catch (SQLException error) {
                throw new IOException(error);
            }
        }

        private void bind(Result result) throws SQLException {
            insert.setInt(1, batch);
            insert.setString(2, result.kind);
            insert.setString(3, result.key);
            insert.setString(4, result.rule);
            insert.setString(5, text(result.due));
            insert.setString(6, result.wasBeforeTheEnd() ? text(result.emittedAtMs * 1000) : null);
            insert.setString(7, result.sourceId);
            insert.setString(8, result.id());
        }

        private void bind(Event event) throws SQLException {
            if (event == null) {
                for (int place = 9; place <= 14; place++) {
                    insert.setObject(place, null);
                }
                return;
            }
            insert.setString(9, event.id);
            insert.setString(10, event.key);
            insert.setLong(11, event.seq);
            insert.setString(12, event.kind);
            insert.setString(13, text(event.ts));
            insert.setString(14, text(event.deliverAt));
        }

        private static String text(long us) {
            return Times.text(us, ' ', "");
        }

        @Override
        public void flush(boolean endOfInput) throws IOException { // before the barrier of the checkpoint goes on
            try {
                execute();
                db.commit();
                batch++;
                Tally.committed();
            } catch (SQLException error) {
                throw new IOException(error);
            }
        }

        private void execute() throws SQLException {
            if (waiting > 0) {
                insert.executeBatch();
                waiting = 0;
            }
        }

        @Override
        public void close() throws SQLException {
            insert.close();
            db.close();
        }
    }
}
