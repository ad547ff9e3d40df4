/* The state of keys, as waterclock.streaming.state stores it: the plain engine reads what is written here, and writes what is
 * read here.
 *
 *     a state     [order, watching, ids seen, parked deadlines], each nil where there is none (Engine.state_of)
 *
 * Rule 1: nothing that is read is believed: what does not fit is `Damaged`, and leads to no place outside of the engine.
 * Rule 2: a row that a state holds is known by its number among those of the state.
 */
#ifndef WATERCLOCK_STORED_H
#define WATERCLOCK_STORED_H

#include "chunks.h"

namespace waterclock {

class Stored {
  public:
    Stored(Engine &of, bool has_numbers) : chunks(of.core, has_numbers), engine(of), core(of.core) {}
    Chunks chunks;

    /* Take back the state of a key; of the rows that it holds, `held` of them, the first has the number `first`. */
    void wake(View key_text, View packed, int64_t first, int64_t held) {
        need(!key_text.is_null() && is_utf8(key_text) && !packed.is_null(), "a state without a key");
        Reader from(packed);
        uint32_t key = core.keys.of(key_text);
        from.array_of(4);
        if (!from.took_nil())
            wake_order(key, from, first, held);
        if (!from.took_nil())
            wake_watching(key, from);
        if (!from.took_nil())
            for (uint32_t i = from.array(); i > 0; i--) {
                from.array_of(2);
                View id = from.text();
                engine.ids.wake(key, id, from.whole());
            }
        if (!from.took_nil())
            for (uint32_t i = from.array(); i > 0; i--)
                core.more(key).parked.push_back(chunks.read(from));
        need(from.is_done(), "a state with something behind it");
    }

    /* The state of a key; false where it has none. `held` gets the numbers of the rows that it holds. */
    bool state_of(uint32_t key, Writer &to, std::vector<int64_t> &held, int64_t &gone_by) {
        More *more = core.has_more(key);
        std::vector<const Seen::Id *> seen = ids_of(more);
        bool has_order = orders(key), has_watching = watches(key), has_parked = more != nullptr && !more->parked.empty();
        if (!has_order && !has_watching && seen.empty() && !has_parked)
            return false;
        to.array(4);
        has_order ? put_order(key, to, held) : to.nil();
        has_watching ? put_watching(key, to) : to.nil();
        put_ids(seen, to, gone_by);
        if (!has_parked) {
            to.nil();
            return true;
        }
        to.array(more->parked.size());
        for (const Deadline &one : more->parked)
            chunks.put(one, to);
        return true;
    }

  private:
    Engine &engine;
    Core &core;

    /* order */

    void wake_order(uint32_t key, Reader &from, int64_t first, int64_t held) {
        if (!from.is_array()) {
            core.keys[key].next = from.whole();
            return;
        }
        uint32_t parts = from.array();
        if (core.rules.ordering == BY_SEQUENCE) {
            need(parts == 3, "the order of a key in another form");
            wake_sequence(key, from, first, held);
            return;
        }
        need(parts == 2 && core.rules.ordering == BY_TIME, "the order of a key in another form");
        int64_t latest = from.whole();
        uint32_t events = from.array();
        for (uint32_t i = 0; i < events; i++)
            engine.wait(key, event(from, first, held));
        core.more(key).latest = latest;
    }
    void wake_sequence(uint32_t key, Reader &from, int64_t first, int64_t held) {
        core.keys[key].next = from.whole_or_none();
        if (!from.took_nil()) {
            from.array_of(3);
            Gap &gap = core.gaps[size_t(engine.sequence.gap_of(key))];
            gap.alarm = from.whole_or_none();
            read_runs(from, gap.reported);
            for (uint32_t i = from.array(); i > 0; i--) {
                from.array_of(2);
                int64_t number = from.whole();
                int64_t row = from.took_nil() ? -1 : event(from, first, held);
                gap.put(Held{number, row < 0 ? 0 : core.row(row).time, row});
            }
        }
        if (int32_t &at = core.keys[key].gap; at >= 0 && core.gaps[size_t(at)].is_empty())
            at = -1;
        if (uint32_t runs = from.array(); runs > 0)
            read_runs(from, core.more(key).given_up, runs);
    }
    static void read_runs(Reader &from, std::vector<Run> &to) { read_runs(from, to, from.array()); }
    static void read_runs(Reader &from, std::vector<Run> &to, uint32_t count) {
        for (; count > 0; count--) {
            from.array_of(2);
            int64_t first = from.whole();
            to.push_back(Run{first, from.whole()});
        }
    }
    int64_t event(Reader &from, int64_t first, int64_t held) {
        uint32_t parts = from.array();
        need(parts == 6 || parts == 7, "an event in another form");
        Row row;
        row.time = from.whole();
        row.id = from.text();
        row.number = from.whole_or_none();
        row.type = from.text_or_null();
        row.deliver = from.whole_or_none();
        int64_t kept = from.whole();
        need(kept >= 0 && kept < held, "a row that the state does not hold");
        need(core.rules.ordering != BY_SEQUENCE || row.number != NONE, "an event without its number");
        int64_t number = first + kept;
        if (parts == 7 && !from.took_nil())
            answers(from, row, number);
        else
            need(!core.rules.asks, "an event without what the rules ask of it");
        core.rows[size_t(number)] = row;
        return number;
    }
    void answers(Reader &from, Row &row, int64_t number) {
        from.array_of(4);
        from.array_of(uint32_t(core.rules.due_columns));
        for (int32_t column = 0; column < core.rules.due_columns; column++)
            core.promised[size_t(number * core.rules.due_columns + column)] = from.whole_or_none();
        uint32_t conditions = from.array();
        need(conditions == core.rules.conditions, "the answers to other conditions");
        for (uint32_t i = 0; i < conditions; i++)
            core.holds[size_t(number) * core.rules.words() + i / 64] |= uint64_t(from.boolean()) << (i & 63);
        core.has_lists() ? wake_lists(from, number) : (from.array_of(0), from.array_of(0));
    }
    void wake_lists(Reader &from, int64_t number) {
        View carried = from.values(core.rules.carried);
        core.lists[size_t(number)] = Lists{carried, ties_in(from, core.rules.ties)};
    }
    bool orders(uint32_t key) {
        if (core.rules.ordering == BY_SEQUENCE)
            return core.keys[key].next != NONE || core.keys[key].gap >= 0;
        More *more = core.has_more(key);
        return more != nullptr && !more->waiting.empty();
    }
    void put_order(uint32_t key, Writer &to, std::vector<int64_t> &held) {
        More *more = core.has_more(key);
        const Keys::Key &of = core.keys[key];
        if (core.rules.ordering == BY_TIME) {
            std::vector<Waiting> waiting = more->waiting;
            std::sort(waiting.begin(), waiting.end(), [](const Waiting &a, const Waiting &b) { return b < a; });
            to.array(2);
            to.whole(more->latest);
            to.array(waiting.size());
            int64_t kept = 0;
            for (const Waiting &one : waiting)
                put_event(one.row, kept++, to, held);
            return;
        }
        bool has_runs = more != nullptr && !more->given_up.empty();
        if (of.gap < 0 && !has_runs) {
            to.whole(of.next);
            return;
        }
        to.array(3);
        to.whole_or_nil(of.next);
        of.gap < 0 ? to.nil() : put_gap(core.gaps[size_t(of.gap)], to, held);
        has_runs ? put_runs(more->given_up, to) : to.array(0);
    }
    void put_gap(const Gap &gap, Writer &to, std::vector<int64_t> &held) {
        to.array(3);
        to.whole_or_nil(gap.alarm);
        put_runs(gap.reported, to);
        to.array(gap.held.size() - gap.head);
        int64_t kept = 0;
        for (size_t i = gap.head; i < gap.held.size(); i++) {
            to.array(2);
            to.whole(gap.held[i].number);
            gap.held[i].row < 0 ? to.nil() : put_event(gap.held[i].row, kept++, to, held);
        }
    }
    static void put_runs(const std::vector<Run> &runs, Writer &to) {
        to.array(runs.size());
        for (const Run &run : runs)
            to.array(2), to.whole(run.first), to.whole(run.last);
    }
    void put_event(int64_t number, int64_t kept, Writer &to, std::vector<int64_t> &held) {
        const Row &row = core.row(number);
        to.array(core.rules.asks ? 7 : 6);
        to.whole(row.time);
        to.text(row.id);
        to.whole_or_nil(row.number);
        to.text_or_nil(row.type);
        to.whole_or_nil(row.deliver);
        to.whole(kept);
        held.push_back(number);
        if (!core.rules.asks)
            return;
        to.array(4);
        to.array(size_t(core.rules.due_columns));
        for (int32_t column = 0; column < core.rules.due_columns; column++)
            to.whole_or_nil(core.promised[size_t(number * core.rules.due_columns + column)]);
        to.array(core.rules.conditions);
        for (uint32_t i = 0; i < core.rules.conditions; i++)
            to.boolean(core.holds_of(number, int32_t(i)));
        if (core.has_lists())
            to.packed(core.lists[size_t(number)].carried), to.packed(core.lists[size_t(number)].ties);
        else
            to.array(0), to.array(0);
    }

    /* watching: [what is open], [the last event of each silence], [silences owed] */

    void wake_watching(uint32_t key, Reader &from) {
        need(core.rules.watches, "what other rules watch");
        from.array_of(3);
        for (uint32_t i = from.array(); i > 0; i--) {
            Item item = read_item(from, core.rules.expect_us.size(), core.rules.expect_name(0));
            engine.watch.open(key, item.due, item.rule, item.source, item.carried);
        }
        uint32_t silences = from.array();
        need(silences == 0 || silences == core.rules.quiet_us.size(), "the silences of other rules");
        for (uint32_t i = 0; i < silences; i++) {
            More &more = core.more(key);
            more.last.resize(silences);
            if (from.took_nil())
                continue;
            uint32_t parts = from.array();
            need(parts == 2 || parts == 3, "a silence in another form");
            int64_t time = from.whole();
            View id = from.text();
            more.last[i] = Last{true, time, id, parts == 3 ? chunks.carried(from, core.rules.quiet_name(int32_t(i))) : View{}};
        }
        for (uint32_t i = from.array(); i > 0; i--)
            core.more(key).owed.push_back(read_item(from, core.rules.quiet_us.size(), core.rules.quiet_name(0)));
    }
    Item read_item(Reader &from, size_t rules, int32_t first_name) {
        uint32_t parts = from.array();
        need(parts == 3 || parts == 4, "what is open in another form");
        int64_t due = from.whole();
        int32_t rule = rule_of(from, rules);
        View source = from.text();
        return Item{due, source, parts == 4 ? chunks.carried(from, first_name + rule) : View{}, rule, -1};
    }
    bool watches(uint32_t key) {
        More *more = core.has_more(key);
        return core.keys[key].open >= 0 || (more != nullptr && (!more->owed.empty() || is_silent(*more)));
    }
    static bool is_silent(const More &more) {
        return std::any_of(more.last.begin(), more.last.end(), [](const Last &last) { return last.is_there; });
    }
    void put_watching(uint32_t key, Writer &to) {
        static const More none;
        More *has = core.has_more(key);
        const More &more = has == nullptr ? none : *has;
        to.array(3);
        size_t count = 0;
        for (int32_t at = core.keys[key].open; at >= 0; at = core.items[size_t(at)].next)
            count++;
        to.array(count);
        for (int32_t at = core.keys[key].open; at >= 0; at = core.items[size_t(at)].next)
            put_item(core.items[size_t(at)], to);
        to.array(is_silent(more) ? more.last.size() : 0);
        for (size_t i = 0; is_silent(more) && i < more.last.size(); i++)
            if (more.last[i].is_there)
                put_last(more.last[i], to);
            else
                to.nil();
        to.array(more.owed.size());
        for (const Item &item : more.owed)
            put_item(item, to);
    }
    static void put_item(const Item &item, Writer &to) {
        to.array(item.carried.is_null() ? 3 : 4), to.whole(item.due), to.whole(item.rule), to.text(item.source);
        to.packed(item.carried);
    }
    static void put_last(const Last &last, Writer &to) {
        to.array(last.carried.is_null() ? 2 : 3), to.whole(last.time), to.text(last.id);
        to.packed(last.carried);
    }

    /* ids */

    std::vector<const Seen::Id *> ids_of(const More *more) const {
        std::vector<const Seen::Id *> found;
        for (int32_t at = more == nullptr ? -1 : more->seen; at >= 0; at = engine.ids.all[size_t(at)].next)
            if (const Seen::Id &one = engine.ids.all[size_t(at)]; !engine.ids.is_gone(one))
                found.push_back(&one);
        return found;
    }
    void put_ids(const std::vector<const Seen::Id *> &seen, Writer &to, int64_t &gone_by) {
        if (seen.empty())
            return to.nil();
        to.array(seen.size());
        int64_t newest = INT64_MIN;
        for (const Seen::Id *one : seen) {
            to.array(2), to.text(one->id), to.whole(one->time);
            newest = std::max(newest, one->time);
        }
        gone_by = engine.ids.gone_by(newest);
    }
};

} // namespace waterclock
#endif
