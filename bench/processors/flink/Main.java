package flink;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.time.Duration;
import orders.Event;
import orders.Result;
import orders.Tally;
import org.apache.flink.api.common.RuntimeExecutionMode;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.configuration.CheckpointingOptions;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.configuration.MemorySize;
import org.apache.flink.configuration.StateBackendOptions;
import org.apache.flink.configuration.TaskManagerOptions;
import org.apache.flink.connector.file.src.FileSource;
import org.apache.flink.connector.file.src.reader.TextLineInputFormat;
import org.apache.flink.core.fs.Path;
import org.apache.flink.runtime.util.EnvironmentInformation;
import org.apache.flink.streaming.api.datastream.DataStream;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;

/**
 * The orders and their rules as a job of Flink, in one JVM; a run for each line of the standard input, its record on the output.
 *
 * <pre>
 * INPUT_FOLDER hashmap|rocksdb sqlite|nothing FOLDER_OF_ITS_OWN
 * </pre>
 *
 * <p>Rule 1: checkpoints each second, exactly once, on the disk; those of RocksDB are incremental.
 *
 * <p>Rule 2: as quick as its settings make it: objects reused, one state and one timer an order, RocksDB with a gigabyte.
 */
public final class Main {
    private static final long CHECKPOINT_EVERY_MS = 1000;
    private static final Duration BEHIND = Duration.ofMinutes(2);
    private static final int CORES = 2;

    private Main() {}

    public static void main(String[] arguments) throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] words = line.strip().split(" ");
            System.out.println(run(words[0], words[1], words[2], words[3]));
        }
        System.exit(0);
    }

    private static String run(String input, String backend, String sink, String folder) throws Exception {
        Tally.begin();
        StreamExecutionEnvironment environment = environment(backend, folder);
        DataStream<Event> events = environment
                .fromSource(source(input), WatermarkStrategy.noWatermarks(), "files")
                .map(Event::of)
                .returns(Types.POJO(Event.class))
                .assignTimestampsAndWatermarks(WatermarkStrategy.<Event>forBoundedOutOfOrderness(BEHIND)
                        .withTimestampAssigner((event, before) -> event.ts / 1000));
        events.keyBy(event -> event.key)
                .process(new Rules())
                .returns(Types.POJO(Result.class))
                .sinkTo(sink.equals("sqlite") ? new SQLite(folder + "/results.db") : new ThrownAway())
                .setParallelism(1);
        environment.execute("orders");
        return Tally.end("\"version\": \"Flink " + EnvironmentInformation.getVersion() + "\"");
    }

    private static FileSource<String> source(String folder) {
        return FileSource.forRecordStreamFormat(new TextLineInputFormat(), new Path("file://" + folder))
                .setSplitAssigner(InOrder::new)
                .build();
    }

    private static StreamExecutionEnvironment environment(String backend, String folder) {
        Configuration settings = new Configuration();
        settings.set(StateBackendOptions.STATE_BACKEND, backend);
        settings.set(CheckpointingOptions.CHECKPOINT_STORAGE, "filesystem");
        settings.set(CheckpointingOptions.CHECKPOINTS_DIRECTORY, "file://" + folder + "/checkpoints");
        settings.set(CheckpointingOptions.INCREMENTAL_CHECKPOINTS, backend.equals("rocksdb"));
        settings.set(TaskManagerOptions.MANAGED_MEMORY_SIZE, MemorySize.ofMebiBytes(1024));
        StreamExecutionEnvironment environment = StreamExecutionEnvironment.createLocalEnvironment(CORES, settings);
        environment.setRuntimeMode(RuntimeExecutionMode.STREAMING);
        environment.enableCheckpointing(CHECKPOINT_EVERY_MS);
        environment.getConfig().enableObjectReuse();
        return environment;
    }
}
