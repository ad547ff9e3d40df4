/* Keys that are looked for on pages: first by their hashes, then by themselves.
 *
 * A page's hashes are read one after the other, and each asks one bit of a table that fits the cache.
 */
#ifndef WATERCLOCK_WANTED_H
#define WATERCLOCK_WANTED_H

#include <algorithm>

#include "rules.h"

namespace waterclock {

class Wanted {
  public:
    Keys keys;

    void add(const Texts &texts) {
        for (int64_t i = 0; i < texts.rows; i++)
            if (View text = texts[i]; !text.is_null())
                keys.of(text);
    }
    void ready() {
        size_t size = 1024;
        while (size < keys.all.size() * 32)
            size *= 2;
        bits.assign(size / 64, 0);
        mask = uint32_t(size - 1);
        hashes.clear();
        for (const Keys::Key &key : keys.all) {
            bits[(key.crc & mask) >> 6] |= uint64_t(1) << (key.crc & 63);
            hashes.push_back(key.crc);
        }
        std::sort(hashes.begin(), hashes.end());
        known = keys.all.size();
    }
    bool is_ready() const { return !bits.empty() && known == keys.all.size(); }
    /* The places of those hashes that one of the keys may have. */
    void places(const uint32_t *index, int64_t count, std::vector<int64_t> &found) const {
        const uint64_t *at = bits.data();
        for (int64_t i = 0; i < count; i++)
            if ((at[(index[i] & mask) >> 6] >> (index[i] & 63) & 1) && has(index[i]))
                found.push_back(i);
    }

  private:
    std::vector<uint64_t> bits;
    std::vector<uint32_t> hashes; /* sorted */
    uint32_t mask = 0;
    size_t known = 0;

    bool has(uint32_t hash) const { return std::binary_search(hashes.begin(), hashes.end(), hash); }
};

} // namespace waterclock
#endif
