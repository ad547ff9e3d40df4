/* What the compiled bucket is made on: texts that lie elsewhere, times that do not overflow, hashes, damage.
 *
 * Rule 1: a View points into a buffer that its owner keeps until the engine is gone; nothing here copies a text.
 * Rule 2: a column of texts is checked once, when it comes in: its offsets rise, and end within its bytes.
 * Rule 3: what cannot be is thrown as `Damaged`, which names it; the interpreter never reads past a buffer.
 */
#ifndef WATERCLOCK_TEXT_H
#define WATERCLOCK_TEXT_H

#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <string>
#include <vector>

namespace waterclock {

constexpr int64_t NONE = INT64_MIN; /* no time, no number */

struct Damaged : std::invalid_argument { /* what Cython makes a ValueError of */
    using std::invalid_argument::invalid_argument;
};

inline int64_t plus(int64_t a, int64_t b) {
    int64_t sum;
    return __builtin_add_overflow(a, b, &sum) ? (a < 0 ? INT64_MIN : INT64_MAX) : sum;
}

struct View {
    const char *at = nullptr;
    uint32_t size = 0;
    bool is_null() const { return at == nullptr; }
    bool operator==(const View &other) const {
        return size == other.size && (size == 0 || memcmp(at, other.at, size) == 0);
    }
};

/* Whether a text is UTF-8, as Python decodes it: no surrogates, nothing longer than it must be. */
inline bool is_utf8(View text) {
    const uint8_t *at = (const uint8_t *)text.at, *end = at + text.size;
    while (at < end) {
        uint64_t word;
        if (end - at >= 8 && (memcpy(&word, at, 8), !(word & 0x8080808080808080ull))) {
            at += 8;
            continue;
        }
        uint32_t first = *at++;
        if (first < 0x80)
            continue;
        int more = first >= 0xc2 && first < 0xe0 ? 1 : (first & 0xf0) == 0xe0 ? 2 : first >= 0xf0 && first < 0xf5 ? 3 : 0;
        if (more == 0 || end - at < more)
            return false;
        uint32_t letter = first & (0x3f >> more);
        for (int i = 0; i < more; i++, at++) {
            if ((*at & 0xc0) != 0x80)
                return false;
            letter = letter << 6 | (*at & 0x3f);
        }
        if ((more == 2 && letter < 0x800) || (more == 3 && (letter < 0x10000 || letter > 0x10ffff)) ||
            (letter >= 0xd800 && letter < 0xe000))
            return false;
    }
    return true;
}

/* A column of texts as Arrow has it: rows + 1 offsets; a bit for each row that is there, or no bits at all. */
struct Texts {
    const int32_t *offsets = nullptr;
    const char *bytes = nullptr;
    const uint8_t *valid = nullptr;
    int64_t rows = 0, first = 0; /* the first row's place among the bits */

    View operator[](int64_t row) const {
        if (valid != nullptr && !(valid[(first + row) >> 3] >> ((first + row) & 7) & 1))
            return View{};
        return View{bytes + offsets[row], uint32_t(offsets[row + 1] - offsets[row])};
    }
};

inline Texts checked(const int32_t *offsets, int64_t offset_count, const char *bytes, int64_t size, const uint8_t *valid,
                     int64_t valid_bytes, int64_t rows, int64_t first) {
    static const char nothing[1] = {0};
    if (rows < 0 || first < 0 || (rows > 0 && offset_count < rows + 1))
        throw Damaged("a column of texts that is shorter than it says");
    if (valid != nullptr && (first + rows + 7) / 8 > valid_bytes)
        throw Damaged("a column of texts with too few bits for nulls");
    if (rows > 0) {
        int64_t before = offsets[0];
        bool rises = before >= 0;
        for (int64_t row = 1; row <= rows; row++) {
            rises &= offsets[row] >= before;
            before = offsets[row];
        }
        if (!rises || before > size)
            throw Damaged("a column of texts whose offsets lead out of it");
    }
    return Texts{offsets, bytes == nullptr ? nothing : bytes, valid, rows, first};
}

inline uint64_t mix(uint64_t a, uint64_t b) {
    unsigned __int128 product = (unsigned __int128)a * b;
    return uint64_t(product) ^ uint64_t(product >> 64);
}

inline uint32_t hash_of(View text) {
    const char *at = text.at;
    size_t left = text.size;
    uint64_t word, hash = 0x9E3779B97F4A7C15ull ^ left;
    for (; left >= 8; at += 8, left -= 8) {
        memcpy(&word, at, 8);
        hash = mix(hash ^ word, 0xE7037ED1A0B428DBull);
    }
    word = 0;
    if (left)
        memcpy(&word, at, left);
    hash = mix(hash ^ word, 0x8EBC6AF09C88C6E3ull);
    return uint32_t(hash ^ (hash >> 32));
}

/* CRC-32 as zlib has it, eight bytes a turn: the hash by which a page is searched for a key. */
struct Crc {
    uint32_t table[8][256];
    Crc() {
        for (uint32_t byte = 0; byte < 256; byte++) {
            uint32_t value = byte;
            for (int bit = 0; bit < 8; bit++)
                value = value & 1 ? value >> 1 ^ 0xEDB88320u : value >> 1;
            table[0][byte] = value;
        }
        for (int turn = 1; turn < 8; turn++)
            for (int byte = 0; byte < 256; byte++)
                table[turn][byte] = table[turn - 1][byte] >> 8 ^ table[0][table[turn - 1][byte] & 255];
    }
    uint32_t operator()(View text) const {
        const uint8_t *at = (const uint8_t *)text.at;
        uint32_t crc = ~0u;
        size_t left = text.size;
        for (; left >= 8; at += 8, left -= 8) {
            uint32_t low, high;
            memcpy(&low, at, 4);
            memcpy(&high, at + 4, 4);
            low ^= crc;
            crc = table[7][low & 255] ^ table[6][low >> 8 & 255] ^ table[5][low >> 16 & 255] ^ table[4][low >> 24] ^
                  table[3][high & 255] ^ table[2][high >> 8 & 255] ^ table[1][high >> 16 & 255] ^ table[0][high >> 24];
        }
        for (; left; at++, left--)
            crc = crc >> 8 ^ table[0][(crc ^ *at) & 255];
        return ~crc;
    }
};

inline uint32_t crc_of(View text) {
    static const Crc crc;
    return crc(text);
}

} // namespace waterclock
#endif
