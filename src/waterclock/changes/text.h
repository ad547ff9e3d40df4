/* Text that grows, and what JSON is written of: numbers, strings, base64; and bytes that are JSON for certain.

Rule 1: each writer returns 0, or -1 where it cannot write it for certain as the plain code does: then that is asked.
Rule 2: strings are UTF-8 as Python is strict about it: nothing overlong, no surrogates, nothing above U+10FFFF. */
#ifndef WATERCLOCK_TEXT_H
#define WATERCLOCK_TEXT_H

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    char *bytes;
    size_t size, room;
} text_t;

static int text_reserve(text_t *text, size_t more) {
    if (text->room - text->size >= more)
        return 0;
    size_t room = text->room * 2 > text->size + more ? text->room * 2 : text->size + more + 256;
    char *bytes = (char *)realloc(text->bytes, room);
    if (!bytes)
        return -1;
    text->bytes = bytes;
    text->room = room;
    return 0;
}

static int text_put(text_t *text, const char *bytes, size_t size) {
    if (!size) /* memcpy takes no null pointer, of no bytes neither */
        return 0;
    if (text_reserve(text, size))
        return -1;
    memcpy(text->bytes + text->size, bytes, size);
    text->size += size;
    return 0;
}

/* `digits` at least, filled with zeros. */
static int text_number(text_t *text, uint64_t value, int digits) {
    char made[24];
    int at = 24;
    do
        made[--at] = (char)('0' + value % 10);
    while (value /= 10);
    while (24 - at < digits)
        made[--at] = '0';
    return text_put(text, made + at, (size_t)(24 - at));
}

static int text_signed(text_t *text, int64_t value) {
    if (value >= 0)
        return text_number(text, (uint64_t)value, 1);
    return text_put(text, "-", 1) || text_number(text, 0 - (uint64_t)value, 1) ? -1 : 0;
}

/* How many bytes the character of several bytes at `at` has; 0 if it is none. */
static int utf8_width(const uint8_t *at, size_t left) {
    uint8_t first = at[0];
    int width = first >= 0xF0 ? 4 : first >= 0xE0 ? 3 : 2;
    if (first < 0xC2 || first > 0xF4 || left < (size_t)width)
        return 0;
    for (int place = 1; place < width; place++)
        if ((at[place] & 0xC0) != 0x80)
            return 0;
    if ((first == 0xE0 && at[1] < 0xA0) || (first == 0xED && at[1] > 0x9F) || (first == 0xF0 && at[1] < 0x90) ||
        (first == 0xF4 && at[1] > 0x8F))
        return 0;
    return width;
}

static int is_ascii(const uint8_t *bytes, size_t size) {
    for (size_t at = 0; at < size; at++)
        if (bytes[at] >= 0x80)
            return 0;
    return 1;
}

static void put_escaped(char **to, uint8_t byte) {
    static const char digits[] = "0123456789abcdef";
    char letter = 0;
    switch (byte) {
    case '"': letter = '"'; break;
    case '\\': letter = '\\'; break;
    case '\b': letter = 'b'; break;
    case '\f': letter = 'f'; break;
    case '\n': letter = 'n'; break;
    case '\r': letter = 'r'; break;
    case '\t': letter = 't'; break;
    }
    *(*to)++ = '\\';
    if (letter) {
        *(*to)++ = letter;
        return;
    }
    memcpy(*to, "u00", 3);
    (*to)[3] = digits[byte >> 4];
    (*to)[4] = digits[byte & 15];
    *to += 5;
}

/* The JSON string of UTF-8: quotes, backslashes and control characters escaped, everything else as it stands. */
static int text_quoted(text_t *text, const uint8_t *bytes, size_t size) {
    if (text_reserve(text, 6 * size + 2))
        return -1;
    char *to = text->bytes + text->size;
    *to++ = '"';
    for (size_t at = 0; at < size;) {
        uint8_t byte = bytes[at];
        if (byte >= 0x80) {
            int width = utf8_width(bytes + at, size - at);
            if (!width)
                return -1;
            memcpy(to, bytes + at, (size_t)width);
            to += width;
            at += (size_t)width;
            continue;
        }
        if (byte < 0x20 || byte == '"' || byte == '\\')
            put_escaped(&to, byte);
        else
            *to++ = (char)byte;
        at++;
    }
    *to++ = '"';
    text->size = (size_t)(to - text->bytes);
    return 0;
}

/* The JSON string of base64; zeros behind the bytes up to `whole` of them. */
static int text_base64(text_t *text, const uint8_t *bytes, size_t size, size_t whole) {
    static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    if (whole < size)
        whole = size;
    if (text_reserve(text, (whole + 2) / 3 * 4 + 2))
        return -1;
    char *to = text->bytes + text->size;
    *to++ = '"';
    for (size_t at = 0; at < whole; at += 3) {
        uint32_t three = 0;
        for (size_t place = at; place < at + 3; place++)
            three = three << 8 | (place < size ? bytes[place] : 0);
        *to++ = letters[three >> 18];
        *to++ = letters[three >> 12 & 63];
        *to++ = at + 1 < whole ? letters[three >> 6 & 63] : '=';
        *to++ = at + 2 < whole ? letters[three & 63] : '=';
    }
    *to++ = '"';
    text->size = (size_t)(to - text->bytes);
    return 0;
}

#endif
