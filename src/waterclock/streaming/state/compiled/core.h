/* What the parts of the engine work on: keys and what each has, rows, counters, deadlines, results.
 *
 * Rule 1: it lives for one batch. What is taken out of a list stays in its pool until the end.
 * Rule 2: what most keys have stands in the key or in a pool by number; the rest in a `More`, which few keys have.
 */
#ifndef WATERCLOCK_CORE_H
#define WATERCLOCK_CORE_H

#include "deadlines.h"
#include "ties.h"

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
struct Item { /* what is open or owed: due, the number of its rule, the source's id, what is carried of it */
    int64_t due;
    View source, carried;
    int32_t rule, next; /* of what is open: the next one in its list, -1 behind the last */
};
struct Last { /* of a silence: the last event */
    bool is_there = false;
    int64_t time = 0;
    View id, carried;
};
struct Waiting { /* until it is complete, by time, then by its columns of `tie`, then as it came */
    int64_t time, taken, row;
    View ties;
    bool operator<(const Waiting &other) const {
        if (time != other.time)
            return time > other.time;
        int order = compared(ties, other.ties);
        return order != 0 ? order > 0 : taken > other.taken;
    }
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
    std::vector<uint64_t> holds;   /* rules.words() of them for each row: a bit for each condition */
    std::vector<Lists> lists;      /* one for each row, where the rules ask for them */
    std::deque<std::string> made;  /* lists of what is carried, where that is a part of a row's */
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
    bool has_lists() const { return rules.carried != 0 || rules.ties != 0; }
    View ties(int64_t number) const { return has_lists() ? lists[size_t(number)].ties : View{}; }
    bool holds_of(int64_t number, int32_t where) const {
        uint64_t word = holds[size_t(number) * rules.words() + size_t(where) / 64];
        return word >> (where & 63) & 1;
    }
    /* What the results of a rule carry of a row; null where that is nothing. */
    View carried(int32_t rule, int64_t number) {
        const std::vector<int32_t> &places = rules.carry[size_t(rule - R_NAMED)];
        if (places.empty())
            return View{};
        made.push_back(picked(lists[size_t(number)].carried, places));
        return View{made.back().data(), uint32_t(made.back().size())};
    }
    void found(Kind kind, uint32_t key, int32_t rule, int64_t due, View source, int64_t event = -1, View carries = View{}) {
        results.add(kind, keys[key].text, rule, due, source, event, carries);
    }
    void arm(int kind, uint32_t key, int64_t due, int32_t rule = 0, View source = View{}, int64_t row = -1) {
        deadlines.add(Deadline{due, row, keys[key].text, source, View{}, rule, uint8_t(kind)});
    }
};

} // namespace waterclock
#endif
