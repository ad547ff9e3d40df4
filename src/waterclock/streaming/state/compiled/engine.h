/* The rules at work on one bucket of keys: waterclock/rules/engine.py over rows by number.
 *
 * Who drives it keeps what rests. One step, in this order:
 *     wake      the states of the step's keys
 *     move      the watermark; for each level, from the highest: chunks of the opened slots (`deadlines.pass`), then fresh ones
 *     due       in order; the keys of `due_keys` are to be woken
 *     fire      what the watermark passed
 *     take      the rows, one after the other
 *     fire      what they made due
 */
#ifndef WATERCLOCK_ENGINE_H
#define WATERCLOCK_ENGINE_H

#include "seen.h"
#include "sequence.h"
#include "watching.h"

namespace waterclock {

constexpr int64_t NO_WATERMARK = -(int64_t(1) << 61);

class Engine {
  public:
    Core core;
    Sequence<Engine> sequence;
    Watch watch;
    Seen ids;

    explicit Engine(Rules rules)
        : core(std::move(rules), NO_WATERMARK), sequence(core, *this), watch(core), ids(core, core.rules.within_us) {}

    /* Keys whose deadlines fire now, but for those of deliveries: they change nothing of their key, which may rest on. */
    std::vector<View> due_keys() {
        std::vector<View> keys;
        Keys once;
        for (const Deadline &one : core.deadlines.due)
            if (one.kind != DELIVER)
                once.of(one.key);
        for (const Keys::Key &key : once.all)
            keys.push_back(key.text);
        return keys;
    }
    void fire() {
        core.deadlines.fire_all([this](const Deadline &of) { fire(of); });
    }
    /* Rows from `first` on; a key that is null makes a heartbeat of its row. */
    void take(const Texts &keys, int64_t first) {
        constexpr int64_t AHEAD = 8;
        std::vector<uint32_t> hashes(size_t(keys.rows));
        for (int64_t i = 0; i < keys.rows; i++)
            hashes[size_t(i)] = hash_of(keys[i]);
        for (int64_t i = 0; i < keys.rows; i++) {
            if (i + AHEAD < keys.rows)
                core.keys.expect(hashes[size_t(i + AHEAD)]);
            if (keys[i].is_null())
                core.counters.heartbeats++;
            else
                take_one(core.keys.of(keys[i], hashes[size_t(i)]), first + i);
        }
    }

    /* what order asks of the engine */

    void release(uint32_t key, int64_t number) {
        core.counters.released++;
        if (core.rules.watches)
            watch.see(key, number);
        if (!core.rules.has_events)
            return;
        const Row &row = core.row(number);
        if (row.deliver == NONE) {
            core.found(EVENT, key, core.rules.ordering == AS_THEY_COME ? R_PASS : R_ORDER, row.time, row.id, number);
        } else {
            core.counters.held++;
            core.arm(DELIVER, key, row.deliver, 0, row.id, number);
        }
    }
    void late(uint32_t key, int64_t number) {
        core.counters.late++;
        core.found(LATE, key, R_LATE, core.row(number).time, core.row(number).id, number);
    }

    /* order by time */

    void wait(uint32_t key, int64_t number) {
        More &more = core.more(key);
        more.waiting.push_back(Waiting{core.row(number).time, ++taken, number, core.ties(number)});
        std::push_heap(more.waiting.begin(), more.waiting.end());
    }

  private:
    int64_t taken = 0;

    void take_one(uint32_t key, int64_t number) {
        const Row &row = core.row(number);
        if (row.id.is_null() || row.time == NONE || (core.rules.ordering == BY_SEQUENCE && row.number == NONE))
            throw Damaged("an event without its id, its time or its number");
        core.counters.events++;
        if (core.rules.within_us >= 0 && ids.seen(key, row.id, row.time))
            core.counters.duplicates++;
        else if (row.time < core.watermark)
            too_late(key, number);
        else
            accept(key, number);
        unpark(key);
    }
    void accept(uint32_t key, int64_t number) {
        if (core.rules.ordering == BY_SEQUENCE)
            sequence.accept(key, number);
        else if (core.rules.ordering == BY_TIME)
            accept_by_time(key, number);
        else
            release(key, number);
    }
    void too_late(uint32_t key, int64_t number) {
        if (core.rules.ordering != BY_SEQUENCE) {
            late(key, number);
        } else if (sequence.known(key, number)) {
            core.counters.duplicates++;
        } else {
            late(key, number);
            sequence.passed(key, number);
        }
    }
    void accept_by_time(uint32_t key, int64_t number) {
        More &more = core.more(key);
        int64_t time = core.row(number).time;
        if (!more.waiting.empty() && time < more.latest)
            core.counters.reordered++;
        else
            more.latest = time;
        wait(key, number);
        core.counters.held++;
        core.arm(COMPLETE, key, plus(time, 1));
    }
    void release_next(uint32_t key) {
        More *more = core.has_more(key);
        if (more == nullptr || more->waiting.empty())
            throw Damaged("a deadline of an event that is not there");
        std::pop_heap(more->waiting.begin(), more->waiting.end());
        int64_t number = more->waiting.back().row;
        more->waiting.pop_back();
        core.counters.held--;
        release(key, number);
    }
    bool holds_before(uint32_t key, int64_t time) {
        if (core.rules.ordering == BY_SEQUENCE)
            return sequence.holds_before(key, time);
        More *more = core.has_more(key);
        return more != nullptr && !more->waiting.empty() && more->waiting.front().time < time;
    }
    void fire(const Deadline &of) {
        if (of.kind == DELIVER) {
            core.counters.held--;
            core.results.add(EVENT, of.key, R_DELIVER, of.due, of.source, of.row);
            return;
        }
        uint32_t key = core.keys.of(of.key);
        if (of.kind == COMPLETE)
            release_next(key);
        else if (of.kind == OVERDUE)
            sequence.overdue(key, of.due);
        else if (holds_before(key, of.due))
            park(core.more(key).parked, of);
        else
            watch.fire(key, of);
        unpark(key);
    }
    static void park(std::vector<Deadline> &parked, const Deadline &of) {
        auto is_before = [](const Deadline &a, const Deadline &b) { return a.due < b.due; };
        parked.insert(std::upper_bound(parked.begin(), parked.end(), of, is_before), of);
    }
    /* Deadlines that waited for events held behind a gap, and need wait no longer, fire by due time with what these made. */
    void unpark(uint32_t key) {
        More *more = core.has_more(key);
        while (more != nullptr && !more->parked.empty() && !holds_before(key, more->parked.front().due)) {
            core.deadlines.give_back(more->parked.front());
            more->parked.erase(more->parked.begin());
        }
    }
};

} // namespace waterclock
#endif
