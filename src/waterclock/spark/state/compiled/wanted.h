/* Keys that are looked for on pages: first by their hashes, then by themselves.
 *
 * A page's hashes are read one after the other, and each asks one bit of a table that fits the cache.
 */
#ifndef WATERCLOCK_WANTED_H
#define WATERCLOCK_WANTED_H

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
        for (const Keys::Key &key : keys.all)
            bits[(key.crc & mask) >> 6] |= uint64_t(1) << (key.crc & 63);
    }
    /* The places of those hashes that one of the keys may have; `alive` has a byte for each. */
    void places(const uint32_t *hashes, const uint8_t *alive, int64_t count, std::vector<int64_t> &found) const {
        for (int64_t i = 0; i < count; i++)
            if ((bits[(hashes[i] & mask) >> 6] >> (hashes[i] & 63) & 1) && alive[i])
                found.push_back(i);
    }

  private:
    std::vector<uint64_t> bits;
    uint32_t mask = 0;
};

} // namespace waterclock
#endif
