/* What the parts of the engine work on: keys and what each has, rows, counters, deadlines, results.
 *
 * Rule 1: it lives for one batch. What is taken out of a list stays in its pool until the end.
 * Rule 2: what most keys have stands in the key or in a pool by number; the rest in a `More`, which few keys have.
 */
#ifndef WATERCLOCK_CORE_H
#define WATERCLOCK_CORE_H

#include <deque>

#include "deadlines.h"

namespace waterclock {

struct Held { /* behind a gap; row -1: a late event passed the number */
    int64_t number, time, row;
};
struct Run { /* missing numbers, first and last */
    int64_t first, last;
};
struct Gap {
    std::vector<Held> held; /* by number, from `head` on */
    size_t head = 0;
    int64_t alarm = NONE;
    std::vector<Run> reported;

    bool is_empty() const { return head == held.size(); }
    std::vector<Held>::iterator from(int64_t number) {
        auto less = [](const Held &one, int64_t value) { return one.number < value; };
        return std::lower_bound(held.begin() + int64_t(head), held.end(), number, less);
    }
    bool has(int64_t number) {
        auto found = from(number);
        return found != held.end() && found->number == number;
    }
    void put(const Held &one) {
        auto found = from(one.number);
        if (found != held.end() && found->number == one.number)
            *found = one;
        else
            held.insert(found, one);
    }
};
struct Item { /* what is open or owed: due, the number of its rule, the source's id */
    int64_t due;
    View source;
    int32_t rule, next; /* of what is open: the next one in its list, -1 behind the last */
};
struct Last { /* of a silence: the last event */
    bool is_there = false;
    int64_t time = 0;
    View id;
};
struct Waiting { /* until it is complete, by time and then as it came */
    int64_t time, taken, row;
    bool operator<(const Waiting &other) const { return time != other.time ? time > other.time : taken > other.taken; }
};
struct More {
    std::vector<Run> given_up;
    std::vector<Deadline> parked;
    std::vector<Last> last;
    std::vector<Item> owed;
    std::vector<Waiting> waiting; /* a heap */
    int64_t latest = NONE;
    int32_t open_end = -1, seen = -1, seen_end = -1; /* ends of lists */
};

class Core {
  public:
    const Rules rules;
    Keys keys;
    std::vector<Row> rows;
    std::vector<int64_t> promised; /* rules.due_columns of them for each row */
    Counters counters;
    Results results;
    Deadlines deadlines;
    int64_t watermark;
    std::vector<Item> items;
    std::deque<Gap> gaps;
    std::deque<More> mores;

    Core(Rules of, int64_t at) : rules(std::move(of)), deadlines(at), watermark(at) {}

    More &more(uint32_t key) {
        int32_t &at = keys[key].more;
        if (at < 0) {
            at = int32_t(mores.size());
            mores.emplace_back();
        }
        return mores[at];
    }
    More *has_more(uint32_t key) {
        int32_t at = keys[key].more;
        return at < 0 ? nullptr : &mores[at];
    }
    const Row &row(int64_t number) const { return rows[size_t(number)]; }
    void found(Kind kind, uint32_t key, int32_t rule, int64_t due, View source, int64_t carries = -1) {
        results.add(kind, keys[key].text, rule, due, source, carries);
    }
    void arm(int kind, uint32_t key, int64_t due, int32_t rule = 0, View source = View{}, int64_t carried = -1) {
        deadlines.add(Deadline{due, carried, keys[key].text, source, rule, uint8_t(kind)});
    }
};

} // namespace waterclock
#endif
