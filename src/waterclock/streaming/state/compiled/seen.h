/* Ids seen for each key: waterclock/rules/engine.py over texts.
 *
 * Rule 1: an id counts as forgotten once the watermark is past its horizon. It goes with its generation, an eighth of the
 *         horizon; whether it has gone shows in what is stored, and nowhere else.
 */
#ifndef WATERCLOCK_SEEN_H
#define WATERCLOCK_SEEN_H

#include "core.h"

namespace waterclock {

class Seen {
  public:
    struct Id {
        View id;
        uint32_t key, hash;
        int64_t time;
        int32_t next; /* of the same key; -1 behind the last */
    };
    std::vector<Id> all;

    Seen(Core &of, int64_t within_us) : core(of), within(within_us), width(std::max<int64_t>(1, within_us / 8)) {}

    /* True for a duplicate; otherwise the id is remembered. */
    bool seen(uint32_t key, View id, int64_t time) {
        size_t at = place(key, id);
        if (!table[at]) {
            put(at, key, id, time);
            return false;
        }
        Id &known = all[table[at] - 1];
        if (std::max(time, core.watermark) <= plus(known.time, within))
            return true;
        known.time = time;
        return false;
    }
    void wake(uint32_t key, View id, int64_t time) {
        size_t at = place(key, id);
        if (!table[at])
            put(at, key, id, time);
    }
    bool is_gone(const Id &one) const {
        return floored(one.time) <= floored(plus(core.watermark, -within)) - 1;
    }
    /* When all ids of these generations are forgotten. */
    int64_t gone_by(int64_t newest) const { return plus(plus(floored(newest) * width, width), within); }

  private:
    Core &core;
    int64_t within, width;
    std::vector<uint32_t> table = std::vector<uint32_t>(256); /* the number of an id, and one */

    int64_t floored(int64_t time) const { return time / width - (time % width < 0); }
    static uint32_t hash(uint32_t key, View id) { return uint32_t(mix(hash_of(id), key * 0xD6E8FEB86659FD93ull + 1)); }
    size_t place(uint32_t key, View id) const {
        uint32_t wanted = hash(key, id);
        size_t mask = table.size() - 1, at = wanted & mask;
        for (; table[at]; at = (at + 1) & mask) {
            const Id &one = all[table[at] - 1];
            if (one.hash == wanted && one.key == key && one.id == id)
                break;
        }
        return at;
    }
    void put(size_t at, uint32_t key, View id, int64_t time) {
        all.push_back(Id{id, key, hash(key, id), time, -1});
        table[at] = uint32_t(all.size());
        More &more = core.more(key);
        int32_t made = int32_t(all.size()) - 1;
        (more.seen_end < 0 ? more.seen : all[size_t(more.seen_end)].next) = made;
        more.seen_end = made;
        if (all.size() * 2 > table.size())
            grow();
    }
    void grow() {
        table.assign(table.size() * 4, 0);
        size_t mask = table.size() - 1;
        for (size_t i = 0; i < all.size(); i++) {
            size_t at = all[i].hash & mask;
            while (table[at])
                at = (at + 1) & mask;
            table[at] = uint32_t(i + 1);
        }
    }
};

} // namespace waterclock
#endif
