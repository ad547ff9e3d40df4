/* Order by sequence: waterclock/rules/ordering.py over rows; its table and its rules are the ones there.
 *
 * `Engine` is who releases events and tells of late ones and duplicates.
 */
#ifndef WATERCLOCK_SEQUENCE_H
#define WATERCLOCK_SEQUENCE_H

#include "core.h"

namespace waterclock {

template <class Engine> class Sequence {
  public:
    Sequence(Core &of, Engine &for_) : core(of), engine(for_) {}

    void accept(uint32_t key, int64_t row) {
        int64_t number = core.row(row).number, due = expected(key);
        if (number == due && core.keys[key].gap < 0) {
            core.keys[key].next = plus(number, 1);
            engine.release(key, row);
        } else if (number < due) {
            below(key, row);
        } else {
            at_gap(key, row, number);
        }
    }
    bool known(uint32_t key, int64_t row) {
        int64_t number = core.row(row).number;
        if (number < expected(key))
            return !was_given_up(key, number);
        return core.keys[key].gap >= 0 && gap_at(core.keys[key].gap).has(number);
    }
    void passed(uint32_t key, int64_t row) {
        int64_t number = core.row(row).number;
        if (number < expected(key))
            return;
        int32_t at = gap_of(key);
        gap_at(at).put(Held{number, 0, -1});
        drain(key, at);
    }
    bool holds_before(uint32_t key, int64_t time) {
        int32_t at = core.keys[key].gap;
        if (at < 0)
            return false;
        const Gap &gap = gap_at(at);
        for (size_t i = gap.head; i < gap.held.size(); i++)
            if (gap.held[i].row >= 0 && gap.held[i].time < time)
                return true;
        return false;
    }
    void overdue(uint32_t key, int64_t due) {
        int32_t at = core.keys[key].gap;
        if (at < 0 || gap_at(at).alarm != due)
            return;
        run_out(key, at, due, NONE);
        if (core.keys[key].gap == at)
            set_alarm(key, at, due);
    }
    int32_t gap_of(uint32_t key) {
        int32_t &at = core.keys[key].gap;
        if (at >= 0)
            return at;
        if (free.empty()) {
            at = int32_t(core.gaps.size());
            core.gaps.emplace_back();
        } else {
            at = free.back();
            free.pop_back();
            core.gaps[size_t(at)] = Gap{};
        }
        return at;
    }

  private:
    Core &core;
    Engine &engine;
    std::vector<int32_t> free;

    Gap &gap_at(int32_t at) { return core.gaps[size_t(at)]; }
    int64_t expected(uint32_t key) const { return core.keys[key].next == NONE ? 1 : core.keys[key].next; }
    int64_t patience(const Held &held) const { return plus(held.time, core.rules.wait_us); }
    bool is_held(uint32_t key, int32_t at, int64_t number) {
        return core.keys[key].gap == at && gap_at(at).has(number);
    }

    void below(uint32_t key, int64_t row) {
        if (was_given_up(key, core.row(row).number))
            engine.late(key, row);
        else
            core.counters.duplicates++;
    }
    void at_gap(uint32_t key, int64_t row, int64_t number) {
        int32_t at = gap_of(key);
        int64_t time = core.row(row).time, alarm = gap_at(at).alarm;
        if (gap_at(at).has(number)) {
            core.counters.duplicates++;
        } else if (alarm != NONE && time >= alarm && impatient(key, at, number, time)) {
            below(key, row);
        } else {
            gap_at(at).put(Held{number, time, row});
            core.counters.held++;
            number == expected(key) ? drain(key, at) : hold(key, at, plus(time, core.rules.wait_us));
        }
    }
    void hold(uint32_t key, int32_t at, int64_t due) {
        core.counters.reordered++;
        Gap &gap = gap_at(at);
        if (gap.alarm == NONE || due < gap.alarm) {
            gap.alarm = due;
            core.arm(OVERDUE, key, due);
        }
    }
    bool impatient(uint32_t key, int32_t at, int64_t number, int64_t time) {
        Gap &gap = gap_at(at);
        for (size_t i = gap.head; i < gap.held.size(); i++)
            if (gap.held[i].row >= 0 && gap.held[i].number > number && patience(gap.held[i]) <= time) {
                run_out(key, at, time, number);
                break;
            }
        return expected(key) > number;
    }
    void drain(uint32_t key, int32_t at) {
        Gap &gap = gap_at(at);
        int64_t number = expected(key);
        while (gap.head < gap.held.size() && gap.held[gap.head].number == number) {
            Held first = gap.held[gap.head++];
            number = plus(number, 1);
            core.keys[key].next = number;
            if (first.row >= 0) {
                core.counters.held--;
                engine.release(key, first.row);
            }
        }
        if (gap.is_empty() && core.keys[key].gap == at) {
            core.keys[key].gap = -1;
            free.push_back(at);
        }
    }

    /* giving up */

    void run_out(uint32_t key, int32_t at, int64_t time, int64_t until) {
        std::vector<std::pair<int64_t, int64_t>> ends;
        const Gap &gap = gap_at(at);
        for (size_t i = gap.head; i < gap.held.size(); i++)
            if (gap.held[i].row >= 0)
                ends.push_back({patience(gap.held[i]), gap.held[i].number});
        std::sort(ends.begin(), ends.end());
        for (auto [due, number] : ends) {
            if (due > time || (until != NONE && expected(key) > until))
                return;
            if (!is_held(key, at, number))
                continue;
            if (core.rules.on_gap == SKIP)
                skip(key, at, number, due);
            else if (core.rules.on_gap == HOLD)
                report(key, at, number, due);
            else
                dead_letter(key, at, number, due);
        }
    }
    void skip(uint32_t key, int32_t at, int64_t number, int64_t due) {
        for (const Run &run : missing(key, at, number)) {
            tell(key, R_SKIP, run, due);
            core.more(key).given_up.push_back(run);
        }
        for (int64_t held : held_up_to(at, number))
            if (is_held(key, at, held)) { /* else it went out with the run of the one before */
                core.keys[key].next = held;
                drain(key, at);
            }
    }
    void dead_letter(uint32_t key, int32_t at, int64_t number, int64_t due) {
        for (const Run &run : missing(key, at, number))
            core.more(key).given_up.push_back(run);
        Gap &gap = gap_at(at);
        while (gap.head < gap.held.size() && gap.held[gap.head].number <= number) {
            Held first = gap.held[gap.head++];
            if (first.row < 0)
                continue;
            core.counters.held--;
            core.found(GAP, key, R_DEAD_LETTER, due, core.row(first.row).id, first.row);
        }
        core.keys[key].next = plus(number, 1);
        drain(key, at);
    }
    void report(uint32_t key, int32_t at, int64_t number, int64_t due) {
        for (const Run &run : missing(key, at, number)) {
            std::vector<Run> &told = gap_at(at).reported;
            if (std::any_of(told.begin(), told.end(), [&](Run r) { return r.first <= run.first && run.last <= r.last; }))
                continue;
            told.push_back(run);
            tell(key, R_HOLD, run, due);
        }
    }
    void tell(uint32_t key, int32_t rule, const Run &run, int64_t due) {
        std::string numbers = std::to_string(run.first);
        if (run.first != run.last)
            numbers += "-" + std::to_string(run.last);
        core.found(GAP, key, rule, due, core.results.kept(numbers));
    }
    std::vector<Run> missing(uint32_t key, int32_t at, int64_t number) {
        std::vector<Run> runs;
        int64_t next = expected(key);
        for (int64_t held : held_up_to(at, number)) {
            if (held > next)
                runs.push_back(Run{next, held - 1});
            next = plus(held, 1);
        }
        return runs;
    }
    std::vector<int64_t> held_up_to(int32_t at, int64_t number) {
        std::vector<int64_t> found;
        const Gap &gap = gap_at(at);
        for (size_t i = gap.head; i < gap.held.size() && gap.held[i].number <= number; i++)
            found.push_back(gap.held[i].number);
        return found;
    }
    void set_alarm(uint32_t key, int32_t at, int64_t behind) {
        Gap &gap = gap_at(at);
        gap.alarm = NONE;
        for (size_t i = gap.head; i < gap.held.size(); i++) {
            int64_t due = gap.held[i].row >= 0 ? patience(gap.held[i]) : NONE;
            if (due > behind && (gap.alarm == NONE || due < gap.alarm))
                gap.alarm = due;
        }
        if (gap.alarm != NONE)
            core.arm(OVERDUE, key, gap.alarm);
    }
    bool was_given_up(uint32_t key, int64_t number) {
        More *more = core.has_more(key);
        if (more == nullptr)
            return false;
        const std::vector<Run> &runs = more->given_up;
        return std::any_of(runs.begin(), runs.end(), [=](Run run) { return run.first <= number && number <= run.last; });
    }
};

} // namespace waterclock
#endif
