/* Ids of results as waterclock.rules.events makes them: BLAKE2b-128 (RFC 7693) in hex, of kind, key, rule and source.
 *
 * Rule 1: the key is hashed as Python's repr shows it. Where that is more than the text in quotes, the caller makes the id.
 */
#ifndef WATERCLOCK_RESULT_ID_H
#define WATERCLOCK_RESULT_ID_H

#include <algorithm>
#include <utility>

#include "text.h"

namespace waterclock {

inline uint64_t turned(uint64_t x, int by) { return x >> by | x << (64 - by); }

constexpr uint8_t ORDER[10][16] = {{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15},
                                 {14, 10, 4, 8, 9, 15, 13, 6, 1, 12, 0, 2, 11, 7, 5, 3},
                                 {11, 8, 12, 0, 5, 2, 15, 13, 10, 14, 3, 6, 7, 1, 9, 4},
                                 {7, 9, 3, 1, 13, 12, 11, 14, 2, 6, 5, 10, 4, 0, 15, 8},
                                 {9, 0, 5, 7, 2, 4, 10, 15, 14, 1, 11, 12, 6, 8, 3, 13},
                                 {2, 12, 6, 10, 0, 11, 8, 3, 4, 13, 7, 5, 15, 14, 1, 9},
                                 {12, 5, 1, 15, 14, 13, 4, 10, 0, 7, 6, 3, 9, 2, 8, 11},
                                 {13, 11, 7, 14, 12, 1, 3, 9, 5, 0, 15, 4, 8, 6, 2, 10},
                                 {6, 15, 14, 9, 11, 3, 0, 8, 12, 2, 13, 7, 1, 4, 10, 5},
                                 {10, 2, 8, 4, 7, 6, 1, 5, 15, 11, 9, 14, 3, 12, 13, 0}};

struct Mixing {
    uint64_t v[16];
    void pair(int a, int b, int c, int d, uint64_t x, uint64_t y) {
        v[a] += v[b] + x;
        v[d] = turned(v[d] ^ v[a], 32);
        v[c] += v[d];
        v[b] = turned(v[b] ^ v[c], 24);
        v[a] += v[b] + y;
        v[d] = turned(v[d] ^ v[a], 16);
        v[c] += v[d];
        v[b] = turned(v[b] ^ v[c], 63);
    }
    template <int ROUND> void round(const uint64_t *m) { /* which words it takes is known when it is compiled */
        constexpr const uint8_t *s = ORDER[ROUND % 10];
        pair(0, 4, 8, 12, m[s[0]], m[s[1]]);
        pair(1, 5, 9, 13, m[s[2]], m[s[3]]);
        pair(2, 6, 10, 14, m[s[4]], m[s[5]]);
        pair(3, 7, 11, 15, m[s[6]], m[s[7]]);
        pair(0, 5, 10, 15, m[s[8]], m[s[9]]);
        pair(1, 6, 11, 12, m[s[10]], m[s[11]]);
        pair(2, 7, 8, 13, m[s[12]], m[s[13]]);
        pair(3, 4, 9, 14, m[s[14]], m[s[15]]);
    }
    template <int... ROUNDS> void all(const uint64_t *m, std::integer_sequence<int, ROUNDS...>) {
        (round<ROUNDS>(m), ...);
    }
};

inline void blake2b_128(const char *at, size_t left, uint8_t digest[16]) {
    static const uint64_t START[8] = {0x6a09e667f3bcc908ull, 0xbb67ae8584caa73bull, 0x3c6ef372fe94f82bull,
                                      0xa54ff53a5f1d36f1ull, 0x510e527fade682d1ull, 0x9b05688c2b3e6c1full,
                                      0x1f83d9abfb41bd6bull, 0x5be0cd19137e2179ull};
    uint64_t h[8], done = 0;
    memcpy(h, START, sizeof h);
    h[0] ^= 0x01010000 ^ 16;
    for (bool is_last = false; !is_last;) {
        size_t size = std::min<size_t>(left, 128);
        uint64_t m[16] = {0};
        Mixing mixing;
        is_last = left <= 128;
        memcpy(m, at, size);
        done += size;
        memcpy(mixing.v, h, 64);
        memcpy(mixing.v + 8, START, 64);
        mixing.v[12] ^= done;
        if (is_last)
            mixing.v[14] = ~mixing.v[14];
        mixing.all(m, std::make_integer_sequence<int, 12>());
        for (int i = 0; i < 8; i++)
            h[i] ^= mixing.v[i] ^ mixing.v[i + 8];
        at += size;
        left -= size;
    }
    memcpy(digest, h, 16);
}

/* 32 hex digits; false where Python must say how the key reads. */
inline bool result_id(const std::string &kind, bool is_number, View key, const std::string &rule, View source,
                      char *hex, std::string &buffer) {
    if (!is_number)
        for (uint32_t i = 0; i < key.size; i++) {
            unsigned char letter = (unsigned char)key.at[i];
            if (letter < 32 || letter > 126 || letter == '\\' || letter == '\'')
                return false;
        }
    const char *quote = is_number ? "" : "'";
    buffer.assign(kind).push_back(0);
    buffer.append(quote).append(key.at, key.size).append(quote).push_back(0);
    buffer.append(rule).push_back(0);
    buffer.append(source.at, source.size);
    uint8_t digest[16];
    blake2b_128(buffer.data(), buffer.size(), digest);
    static const char DIGITS[] = "0123456789abcdef";
    for (int i = 0; i < 16; i++) {
        hex[2 * i] = DIGITS[digest[i] >> 4];
        hex[2 * i + 1] = DIGITS[digest[i] & 15];
    }
    return true;
}

} // namespace waterclock
#endif
