/* What released events set going: waterclock/rules/watching.py over rows. */
#ifndef WATERCLOCK_WATCHING_H
#define WATERCLOCK_WATCHING_H

#include "core.h"

namespace waterclock {

class Watch {
  public:
    explicit Watch(Core &of) : core(of) {}

    void see(uint32_t key, int64_t row) {
        if (const Plan *plan = core.rules.plan_of(core.row(row).type)) {
            close(*plan, key, row);
            start(*plan, key, row);
        }
        if (!core.rules.quiet_us.empty())
            break_silence(key, row);
    }
    void fire(uint32_t key, const Deadline &of) {
        if (of.kind == EMIT) {
            core.found(EMIT, key, core.rules.delay_name(of.rule), of.due, of.source, -1, of.carried);
            core.counters.pending--;
        } else if (of.kind == EXPIRED) {
            expire(key, of);
        } else {
            fall_silent(key, of);
        }
    }
    void open(uint32_t key, int64_t due, int32_t rule, View source, View carried) {
        int32_t made = int32_t(core.items.size());
        core.items.push_back(Item{due, source, carried, rule, -1});
        int32_t &first = core.keys[key].open;
        if (first < 0) {
            first = made;
        } else {
            int32_t end = ends(key);
            core.items[size_t(end)].next = made;
        }
        if (first != made || core.keys[key].more >= 0)
            core.more(key).open_end = made;
    }

  private:
    Core &core;

    bool holds(int32_t where, int64_t number) const { return where == ALWAYS || core.holds_of(number, where); }

    /* The last of what is open; a list of one has no end of its own. */
    int32_t ends(uint32_t key) {
        More *more = core.has_more(key);
        return more == nullptr || more->open_end < 0 ? core.keys[key].open : more->open_end;
    }
    void take_out(uint32_t key, int32_t before, int32_t item) {
        int32_t next = core.items[size_t(item)].next;
        (before < 0 ? core.keys[key].open : core.items[size_t(before)].next) = next;
        if (More *more = core.has_more(key); more != nullptr && next < 0)
            more->open_end = before;
        core.counters.pending--;
    }
    void close(const Plan &plan, uint32_t key, int64_t number) {
        if (plan.meets.empty())
            return;
        int32_t before = -1;
        for (int32_t item = core.keys[key].open, next; item >= 0; item = next) {
            next = core.items[size_t(item)].next;
            if (is_closed(plan, key, number, core.items[size_t(item)]))
                take_out(key, before, item);
            else
                before = item;
        }
    }
    bool is_closed(const Plan &plan, uint32_t key, int64_t number, const Item &item) {
        if (core.row(number).time >= item.due)
            return false;
        int32_t meets = plan.meets[size_t(item.rule)], withdraws = plan.withdraws[size_t(item.rule)];
        if (meets != NEVER && holds(meets, number)) {
            core.found(MET, key, core.rules.expect_name(item.rule), item.due, item.source, -1, item.carried);
            return true;
        }
        return withdraws != NEVER && holds(withdraws, number);
    }
    void start(const Plan &plan, uint32_t key, int64_t number) {
        const Row &row = core.row(number);
        for (auto [rule, where] : plan.delays)
            if (holds(where, number)) {
                View carried = core.carried(core.rules.delay_name(rule), number);
                int64_t due = plus(row.time, core.rules.delay_us[size_t(rule)]);
                core.deadlines.add(Deadline{due, -1, core.keys[key].text, row.id, carried, rule, EMIT});
                core.counters.pending++;
            }
        for (auto [rule, where] : plan.opens) {
            int64_t due = holds(where, number) ? due_of(rule, number) : NONE;
            if (due == NONE)
                continue;
            open(key, due, rule, row.id, core.carried(core.rules.expect_name(rule), number));
            core.arm(EXPIRED, key, due, rule, row.id);
            core.counters.pending++;
        }
    }
    int64_t due_of(int32_t rule, int64_t number) const {
        int64_t within = core.rules.expect_us[size_t(rule)];
        if (within != NONE)
            return plus(core.row(number).time, within);
        return core.promised[size_t(number * core.rules.due_columns + core.rules.expect_by[size_t(rule)])];
    }
    void expire(uint32_t key, const Deadline &of) {
        int32_t before = -1;
        for (int32_t at = core.keys[key].open; at >= 0; before = at, at = core.items[size_t(at)].next) {
            const Item &item = core.items[size_t(at)];
            if (item.due != of.due || item.rule != of.rule || !(item.source == of.source))
                continue;
            View source = item.source, carried = item.carried;
            take_out(key, before, at);
            core.found(EXPIRED, key, core.rules.expect_name(of.rule), of.due, source, -1, carried);
            return;
        }
    }

    /* silences */

    void break_silence(uint32_t key, int64_t number) {
        const Row &row = core.row(number);
        size_t count = core.rules.quiet_us.size();
        for (size_t rule = 0; rule < count; rule++) {
            if (!holds(core.rules.quiet_where[rule], number))
                continue;
            More &more = core.more(key);
            more.last.resize(count);
            Last &last = more.last[rule];
            int64_t after = core.rules.quiet_us[rule];
            if (last.is_there && row.time >= plus(last.time, after))
                more.owed.push_back(Item{plus(last.time, after), last.id, last.carried, int32_t(rule), -1});
            if (!last.is_there || row.time >= last.time) {
                last = Last{true, row.time, row.id, core.carried(core.rules.quiet_name(int32_t(rule)), number)};
                core.arm(QUIET, key, plus(row.time, after), int32_t(rule), row.id);
            }
        }
    }
    void fall_silent(uint32_t key, const Deadline &of) {
        More *more = core.has_more(key);
        View carried;
        if (more != nullptr && (took_owed(*more, of, carried) || took_last(*more, of, carried)))
            core.found(QUIET, key, core.rules.quiet_name(of.rule), of.due, of.source, -1, carried);
    }
    static bool took_owed(More &more, const Deadline &of, View &carried) {
        for (size_t at = 0; at < more.owed.size(); at++)
            if (more.owed[at].due == of.due && more.owed[at].rule == of.rule && more.owed[at].source == of.source) {
                carried = more.owed[at].carried;
                more.owed.erase(more.owed.begin() + int64_t(at));
                return true;
            }
        return false;
    }
    bool took_last(More &more, const Deadline &of, View &carried) const {
        if (size_t(of.rule) >= more.last.size())
            return false;
        Last &last = more.last[size_t(of.rule)];
        if (!last.is_there || plus(last.time, core.rules.quiet_us[size_t(of.rule)]) != of.due || !(last.id == of.source))
            return false;
        last.is_there = false;
        carried = last.carried;
        return true;
    }
};

} // namespace waterclock
#endif
