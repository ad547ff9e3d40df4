/* MessagePack, as much of it as the state of rules is written in: nil, booleans, numbers, texts, bytes, arrays.
 *
 * Rule 1: nothing is read past the end, and nothing is taken for what it is not: that is `Damaged`.
 * Rule 2: the shortest form of each value is written, as Python's msgpack does; every form is read.
 */
#ifndef WATERCLOCK_MSGPACK_H
#define WATERCLOCK_MSGPACK_H

#include "text.h"

namespace waterclock {

class Reader {
  public:
    explicit Reader(View from) : at((const uint8_t *)from.at), end(at + from.size) {}

    bool is_done() const { return at == end; }
    bool is_nil() const { return peek() == 0xc0; }
    bool is_text() const { return (peek() & 0xe0) == 0xa0 || (peek() >= 0xd9 && peek() <= 0xdb); }
    bool is_array() const { return (peek() & 0xf0) == 0x90 || peek() == 0xdc || peek() == 0xdd; }
    void nil() { need(byte() == 0xc0, "nothing at all"); }
    /* True where there is nothing at all, which is taken. */
    bool took_nil() {
        bool is = is_nil();
        at += is;
        return is;
    }
    bool boolean() {
        uint8_t code = byte();
        need(code == 0xc2 || code == 0xc3, "a boolean");
        return code == 0xc3;
    }
    int64_t whole() {
        uint8_t code = byte();
        if (code < 0x80)
            return code;
        if (code >= 0xe0)
            return int8_t(code);
        switch (code) {
        case 0xcc: return byte();
        case 0xcd: return bytes(2);
        case 0xce: return bytes(4);
        case 0xcf: return positive(bytes(8));
        case 0xd0: return int8_t(byte());
        case 0xd1: return int16_t(bytes(2));
        case 0xd2: return int32_t(bytes(4));
        case 0xd3: return int64_t(bytes(8));
        }
        throw Damaged("something else where a whole number should be");
    }
    int64_t whole_or_none() { return took_nil() ? NONE : whole(); }
    uint32_t array() {
        uint8_t code = byte();
        need((code & 0xf0) == 0x90 || code == 0xdc || code == 0xdd, "a list");
        uint64_t count = (code & 0xf0) == 0x90 ? code & 15 : bytes(code == 0xdc ? 2 : 4);
        need(count <= uint64_t(end - at), "a list as long as it says");
        return uint32_t(count);
    }
    void array_of(uint32_t count) { need(array() == count, "a list of another length"); }
    View text() {
        uint8_t code = byte();
        need((code & 0xe0) == 0xa0 || (code >= 0xd9 && code <= 0xdb), "a text");
        View found = view((code & 0xe0) == 0xa0 ? code & 31 : bytes(1 << (code - 0xd9)));
        need(is_utf8(found), "a text in UTF-8");
        return found;
    }
    /* A whole number, or 0 and 1 for false and true. */
    int64_t rank() { return (peek() & 0xfe) == 0xc2 ? boolean() : whole(); }
    double real() {
        uint8_t code = byte();
        need(code == 0xca || code == 0xcb, "a number");
        uint64_t bits = bytes(code == 0xca ? 4 : 8);
        uint32_t half = uint32_t(bits);
        double value;
        float small;
        memcpy(&value, &bits, 8);
        memcpy(&small, &half, 4);
        return code == 0xca ? small : value;
    }
    View text_or_null() { return took_nil() ? View{} : text(); }
    View binary() {
        uint8_t code = byte();
        need(code >= 0xc4 && code <= 0xc6, "bytes");
        return view(bytes(1 << (code - 0xc4)));
    }

    /* A list of so many values that are no lists; what it is made of. */
    View values(uint32_t count) {
        const uint8_t *first = at;
        for (array_of(count); count > 0; count--) {
            need(!is_array(), "one value");
            skip();
        }
        need(at - first <= UINT32_MAX, "less than 4 GB");
        return View{(const char *)first, uint32_t(at - first)};
    }
    /* A whole value, whatever it is, is passed over; what it is made of. */
    View skip() {
        const uint8_t *first = at;
        for (uint64_t left = 1; left > 0; left--) {
            uint8_t code = peek();
            if (is_array())
                left += array();
            else if (is_text())
                text();
            else if (code >= 0xc4 && code <= 0xc6)
                binary();
            else if (code == 0xc0 || code == 0xc2 || code == 0xc3)
                at++;
            else if (code == 0xca || code == 0xcb)
                real();
            else
                whole();
        }
        need(at - first <= UINT32_MAX, "less than 4 GB");
        return View{(const char *)first, uint32_t(at - first)};
    }

  private:
    const uint8_t *at, *end;

    static void need(bool is, const char *what) {
        if (!is)
            throw Damaged(std::string("something else where there should be ") + what);
    }
    uint8_t peek() const {
        if (at == end)
            throw Damaged("an end in the middle");
        return *at;
    }
    uint8_t byte() {
        uint8_t code = peek();
        at++;
        return code;
    }
    uint64_t bytes(int count) {
        need(end - at >= count, "more bytes");
        uint64_t value = 0;
        for (int i = 0; i < count; i++)
            value = value << 8 | *at++;
        return value;
    }
    static int64_t positive(uint64_t value) {
        need(value <= uint64_t(INT64_MAX), "a number of 63 bits");
        return int64_t(value);
    }
    View view(uint64_t size) {
        need(size <= uint64_t(end - at) && size <= UINT32_MAX, "more bytes");
        View found{(const char *)at, uint32_t(size)};
        at += size;
        return found;
    }
};

class Writer {
  public:
    std::string to;

    void nil() { code(0xc0); }
    void boolean(bool is) { code(is ? 0xc3 : 0xc2); }
    void whole(int64_t value) {
        if (value >= 0)
            value < 0x80 ? code(uint8_t(value))
            : value <= 0xff ? (code(0xcc), big(value, 1))
            : value <= 0xffff ? (code(0xcd), big(value, 2))
            : value <= 0xffffffffll ? (code(0xce), big(value, 4)) : (code(0xcf), big(value, 8));
        else
            value >= -32 ? code(uint8_t(value))
            : value >= INT8_MIN ? (code(0xd0), big(value, 1))
            : value >= INT16_MIN ? (code(0xd1), big(value, 2))
            : value >= INT32_MIN ? (code(0xd2), big(value, 4)) : (code(0xd3), big(value, 8));
    }
    void whole_or_nil(int64_t value) { value == NONE ? nil() : whole(value); }
    void array(size_t count) {
        count < 16 ? code(uint8_t(0x90 | count)) : count <= 0xffff ? (code(0xdc), big(count, 2)) : (code(0xdd), big(count, 4));
    }
    void text(View text) {
        text.size < 32 ? code(uint8_t(0xa0 | text.size))
        : text.size <= 0xff ? (code(0xd9), big(text.size, 1))
        : text.size <= 0xffff ? (code(0xda), big(text.size, 2)) : (code(0xdb), big(text.size, 4));
        to.append(text.at, text.size);
    }
    void binary(View bytes) {
        bytes.size <= 0xff ? (code(0xc4), big(bytes.size, 1))
        : bytes.size <= 0xffff ? (code(0xc5), big(bytes.size, 2)) : (code(0xc6), big(bytes.size, 4));
        to.append(bytes.at, bytes.size);
    }
    void real(double value) {
        uint64_t bits;
        memcpy(&bits, &value, 8);
        code(0xcb), big(bits, 8);
    }
    /* What is packed already; nothing where it is null. */
    void packed(View value) { to.append(value.at, value.size); }
    void text_or_nil(View view) { view.is_null() ? nil() : text(view); }

  private:
    void code(uint8_t byte) { to.push_back(char(byte)); }
    void big(uint64_t value, int count) {
        for (int shift = 8 * (count - 1); shift >= 0; shift -= 8)
            to.push_back(char(value >> shift));
    }
};

} // namespace waterclock
#endif
