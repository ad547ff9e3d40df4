package flink;

import java.util.ArrayList;
import java.util.Collection;
import java.util.Comparator;
import java.util.List;
import java.util.Optional;
import org.apache.flink.connector.file.src.FileSourceSplit;
import org.apache.flink.connector.file.src.assigners.FileSplitAssigner;

/** Files in the order of their names: a reader that begins with the last one would make all events of the others late. */
final class InOrder implements FileSplitAssigner {
    private final List<FileSourceSplit> splits = new ArrayList<>();

    InOrder(Collection<FileSourceSplit> splits) {
        addSplits(splits);
    }

    @Override
    public Optional<FileSourceSplit> getNext(String hostname) {
        return splits.isEmpty() ? Optional.empty() : Optional.of(splits.remove(0));
    }

    @Override
    public void addSplits(Collection<FileSourceSplit> more) {
        splits.addAll(more);
        splits.sort(Comparator.comparing(split -> split.path().toString()));
    }

    @Override
    public Collection<FileSourceSplit> remainingSplits() {
        return splits;
    }
}
