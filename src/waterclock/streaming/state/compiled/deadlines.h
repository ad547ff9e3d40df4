/* The deadlines that a step makes or meets: waterclock/rules/deadlines.py, without what rests in a store.
 *
 * Who drives the engine keeps the packed chunks, slot by slot. It moves the watermark, opens slots, level after level from
 * the highest down, gives what each held (its chunks in order, then what is fresh in it), and then lets all fire.
 *
 * Rule 1: never early. By due time; of equal ones first what releases events, the others in the order of making.
 * Rule 2: what is fresh in a slot is taken out of it before its chunks pass: what is not due goes into the very slot again
 *         where there is no lower level, and was made before.
 * Rule 3: a deadline knows its key by its text: that of a delivery may rest.
 */
#ifndef WATERCLOCK_DEADLINES_H
#define WATERCLOCK_DEADLINES_H

#include <algorithm>
#include <map>
#include <queue>

#include "rules.h"

namespace waterclock {

struct Deadline {
    int64_t due;
    int64_t row; /* of a delivery */
    View key, source, carried;
    int32_t rule; /* its number, of a delay, an expectation or a silence */
    uint8_t kind;
};

constexpr int LEVELS = 4;
constexpr int LEVEL_BITS[LEVELS] = {42, 37, 32, 24};

class Deadlines {
  public:
    std::map<int64_t, std::vector<Deadline>> fresh[LEVELS];
    std::vector<Deadline> due; /* what the watermark has passed */
    int64_t watermark;

    explicit Deadlines(int64_t at) { move(at); }
    void move(int64_t to) { /* within 2^62 */
        watermark = to;
        for (int level = 0; level < LEVELS - 1; level++)
            opened[level] = ((to >> LEVEL_BITS[level]) + 1) * (int64_t(1) << LEVEL_BITS[level]);
    }
    void add(const Deadline &made) {
        if (made.due > watermark)
            rest(made);
        else
            overdue.push(Overdue{made.due, ++(is_ahead(made) ? ahead : count), made});
    }
    /* One that fired and had to wait is due still: it fires before those of its time that are behind. */
    void give_back(const Deadline &waited) { overdue.push(Overdue{waited.due, ++given_back, waited}); }
    /* One that rested: it is due, or goes down. */
    void pass(const Deadline &rested) {
        if (rested.due <= watermark)
            due.push_back(rested);
        else
            rest(rested);
    }
    /* Rule 2: before the chunks of a slot. */
    void open(int level, int64_t slot) {
        auto found = fresh[level].find(slot);
        if (found == fresh[level].end())
            return;
        opened_fresh = std::move(found->second);
        fresh[level].erase(found);
    }
    /* What was fresh in the slot opened last: behind its chunks. */
    void pass_fresh() {
        for (const Deadline &one : opened_fresh)
            pass(one);
        opened_fresh.clear();
    }
    void in_order() {
        std::stable_sort(due.begin(), due.end(), [](const Deadline &a, const Deadline &b) {
            return a.due != b.due ? a.due < b.due : is_ahead(a) && !is_ahead(b);
        });
    }
    template <class Fire> void fire_all(Fire fire) {
        for (size_t i = 0; i < due.size(); i++) {
            while (!overdue.empty() && overdue.top().is_before(due[i]))
                pop(fire);
            fire(Deadline(due[i]));
        }
        due.clear();
        while (!overdue.empty())
            pop(fire);
    }

  private:
    std::vector<Deadline> opened_fresh;
    struct Overdue {
        int64_t due, made;
        Deadline deadline;
        bool operator<(const Overdue &other) const { return due != other.due ? due > other.due : made > other.made; }
        bool is_before(const Deadline &rested) const { return due != rested.due ? due < rested.due : made < 0; }
    };
    std::priority_queue<Overdue> overdue; /* what was due when it was made, the first on top */
    int64_t opened[LEVELS - 1]; /* the end of the open slot of each level but the lowest */
    int64_t count = 0, given_back = INT64_MIN / 2, ahead = INT64_MIN;

    static bool is_ahead(const Deadline &one) { return one.kind == COMPLETE || one.kind == OVERDUE; }
    void rest(const Deadline &made) {
        int level = LEVELS - 1;
        while (level > 0 && made.due >= opened[level - 1])
            level--;
        fresh[level][made.due >> LEVEL_BITS[level]].push_back(made);
    }
    template <class Fire> void pop(Fire &fire) {
        Deadline first = overdue.top().deadline;
        overdue.pop();
        fire(first);
    }
};

} // namespace waterclock
#endif
