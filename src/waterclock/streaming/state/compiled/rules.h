/* The rules as the compiled engine has them, the rows that it moves by number, and what it finds.
 *
 * Rule 1: what a rule means stands in docs/rules.md; waterclock/rules says it in Python, and is the measure.
 * Rule 2: rules, kinds and types are numbers in here; their names are told once, by the one who makes the engine.
 */
#ifndef WATERCLOCK_RULES_H
#define WATERCLOCK_RULES_H

#include <deque>
#include <string_view>
#include <unordered_map>

#include "text.h"

namespace waterclock {

enum Kind : uint8_t { EVENT, EMIT, EXPIRED, MET, GAP, LATE, QUIET }; /* of results, and of deadlines three of them */
enum { DELIVER = 16, COMPLETE, OVERDUE };                           /* of deadlines */
enum Ordering { AS_THEY_COME, BY_TIME, BY_SEQUENCE };
enum OnGap { SKIP, HOLD, DEAD_LETTER };
constexpr int ALWAYS = -1, NEVER = -2; /* in the place of a condition's number */

/* The names of results' rules: these first, then those of delays, expectations and silences, in that order. */
enum Rule : int32_t { R_ORDER, R_PASS, R_DELIVER, R_LATE, R_SKIP, R_HOLD, R_DEAD_LETTER, R_NAMED };

struct Plan { /* what an event of one type does */
    std::vector<std::pair<int32_t, int32_t>> delays, opens; /* rule, condition */
    std::vector<int32_t> meets, withdraws;                  /* by expectation: the condition, or NEVER */
};

struct Rules {
    int ordering = AS_THEY_COME, on_gap = SKIP;
    int64_t wait_us = 0, within_us = -1; /* of order, of deduplicate; -1: none */
    bool has_events = true, watches = false, asks = false;
    int32_t due_columns = 0;
    uint32_t conditions = 0, carried = 0, ties = 0; /* how many of them are asked of each event */
    std::vector<int64_t> delay_us, expect_us, quiet_us; /* expect_us NONE: its deadline is in the column expect_by */
    std::vector<int32_t> expect_by, quiet_where;
    std::vector<std::string> emits;          /* of delays */
    std::vector<std::vector<int32_t>> carry; /* by the name of results, from R_NAMED on: which of what is carried */
    std::unordered_map<std::string_view, int32_t> types;
    std::vector<Plan> plans;

    size_t words() const { return (size_t(conditions) + 63) / 64; }
    int32_t delay_name(int32_t rule) const { return R_NAMED + rule; }
    int32_t expect_name(int32_t rule) const { return R_NAMED + int32_t(delay_us.size()) + rule; }
    int32_t quiet_name(int32_t rule) const { return R_NAMED + int32_t(delay_us.size() + expect_us.size()) + rule; }
    const Plan *plan_of(View type) const {
        if (type.is_null() || types.empty())
            return nullptr;
        auto found = types.find(std::string_view(type.at, type.size));
        return found == types.end() ? nullptr : &plans[found->second];
    }
};

struct Row {
    int64_t time = 0, number = NONE, deliver = NONE;
    View id, type;
};
struct Lists { /* of a row, as MessagePack: what results may carry of it, and its columns of `tie`, each in a list of its own */
    View carried, ties;
};

struct Counters {
    int64_t events = 0, heartbeats = 0, duplicates = 0, late = 0, reordered = 0, released = 0, held = 0, pending = 0;
};

/* Results, a column each; `row` is -1 where a result is no event, `carried` null where it carries no columns of one. */
struct Results {
    std::vector<uint8_t> kind;
    std::vector<int32_t> rule;
    std::vector<int64_t> due, row;
    std::vector<View> key, source, carried;
    std::deque<std::string> made; /* sources that are no event's id: missing numbers */
    size_t key_bytes = 0, source_bytes = 0;

    void add(uint8_t k, View of, int32_t name, int64_t due_us, View from, int64_t event, View carries = View{}) {
        kind.push_back(k);
        rule.push_back(name);
        due.push_back(due_us);
        row.push_back(event);
        key.push_back(of);
        source.push_back(from);
        carried.push_back(carries);
        key_bytes += of.size;
        source_bytes += from.size;
    }
    View kept(const std::string &text) {
        made.push_back(text);
        return View{made.back().data(), uint32_t(made.back().size())};
    }
    size_t size() const { return kind.size(); }
};

/* Keys by number, found by their text. */
class Keys {
  public:
    struct Key {
        View text;
        uint32_t hash, crc;
        int64_t next = NONE; /* the sequence number that is expected; NONE: the first one */
        int32_t gap = -1, open = -1, more = -1;
    };
    std::vector<Key> all;

    Keys() : table(1024) {}
    Key &operator[](uint32_t key) { return all[key]; }
    const Key &operator[](uint32_t key) const { return all[key]; }
    uint32_t of(View text) { return of(text, hash_of(text)); }
    uint32_t of(View text, uint32_t hash) {
        size_t mask = table.size() - 1, at = hash & mask;
        for (; table[at].at1; at = (at + 1) & mask)
            if (table[at].hash == hash && all[table[at].at1 - 1].text == text)
                return table[at].at1 - 1;
        Key made;
        made.text = text;
        made.hash = hash;
        made.crc = crc_of(text);
        all.push_back(made);
        table[at] = Place{hash, uint32_t(all.size())};
        if (all.size() * 2 > table.size())
            grow();
        return uint32_t(all.size() - 1);
    }
    bool knows(View text) const {
        uint32_t hash = hash_of(text);
        size_t mask = table.size() - 1, at = hash & mask;
        for (; table[at].at1; at = (at + 1) & mask)
            if (table[at].hash == hash && all[table[at].at1 - 1].text == text)
                return true;
        return false;
    }
    void expect(uint32_t hash) const { __builtin_prefetch(&table[hash & (table.size() - 1)]); }

  private:
    struct Place {
        uint32_t hash = 0, at1 = 0; /* the number of the key, and one */
    };
    std::vector<Place> table;

    void grow() {
        table.assign(table.size() * 4, Place{});
        size_t mask = table.size() - 1;
        for (uint32_t key = 0; key < all.size(); key++) {
            size_t at = all[key].hash & mask;
            while (table[at].at1)
                at = (at + 1) & mask;
            table[at] = Place{all[key].hash, key + 1};
        }
    }
};

} // namespace waterclock
#endif
