package orders;

/** What the rules say: an event that is delivered or came too late, an order that was paid in time or was not, a gap. */
public class Result {
    public String kind; // event, met, expired, gap, late
    public String key;
    public String rule;
    public long due; // microseconds
    public long emittedAtMs; // the watermark then
    public String sourceId; // of the event that it is about
    public Event event; // null where it carries none

    /** For whoever reads it field by field. */
    public Result() {}

    Result(String kind, String key, String rule, long due, long emittedAtMs, String sourceId, Event event) {
        this.kind = kind;
        this.key = key;
        this.rule = rule;
        this.due = due;
        this.emittedAtMs = emittedAtMs;
        this.sourceId = sourceId;
        this.event = event;
    }

    /** The same in a run that comes again: what is written twice under it stands there once. */
    public String id() {
        return kind + ":" + rule + ":" + sourceId;
    }

    /** Whether there was a watermark, and not yet the end of everything. */
    public boolean wasBeforeTheEnd() {
        return emittedAtMs > 0 && emittedAtMs < 253_402_300_800_000L; // the year 10000
    }
}
