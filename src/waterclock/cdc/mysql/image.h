/* Values of a row image, written as JSON text: what values.py and columns.py write, for the types that most tables have.

Rule 1: IMAGE_ASK stands for whatever is not certain: the plain reader is asked, for one value; IMAGE_END: the bytes end before
        the value does, and nothing of the event is taken from here.
Rule 2: a value that no server writes (a DATETIME below zero, a group of more than nine digits) is asked for. */
#ifndef WATERCLOCK_IMAGE_H
#define WATERCLOCK_IMAGE_H

#include <Python.h>

#include "../../changes/sure.h"

enum { IMAGE_DONE = 0, IMAGE_ASK = 1, IMAGE_END = 2 };
enum { ASKED, SIGNED, UNSIGNED, FLOATS, DOUBLES, DECIMAL, BITS, YEARS, DATES, TIMES, DATETIMES, TIMESTAMPS, LABEL, LABELS, UTF8, NARROW, BYTES, DOCUMENT,
       WHOLE, POINT, REAL, SHORT_REAL, PLAIN };

/* `width`: bytes of the value, or of its length; `digits`: of a fraction or behind the point; `whole`: digits before the point,
   or the size that zeros fill. */
typedef struct {
    int kind, width, digits, whole, place;
} column_t;

static uint64_t big(const uint8_t *at, int width) {
    uint64_t value = 0;
    for (int place = 0; place < width; place++)
        value = value << 8 | at[place];
    return value;
}

static uint64_t little(const uint8_t *at, int width) {
    uint64_t value = 0;
    for (int place = width; place--;)
        value = value << 8 | at[place];
    return value;
}

static int put_clock(text_t *text, uint64_t hours, uint64_t minutes, uint64_t seconds) {
    return text_number(text, hours, 2) || text_put(text, ":", 1) || text_number(text, minutes, 2) ||
           text_put(text, ":", 1) || text_number(text, seconds, 2);
}

static int put_day(text_t *text, uint64_t year, uint64_t month, uint64_t day) {
    return text_number(text, year, 4) || text_put(text, "-", 1) || text_number(text, month, 2) ||
           text_put(text, "-", 1) || text_number(text, day, 2);
}

/* `.` and `digits` digits of what `width` bytes keep. */
static int put_fraction(text_t *text, uint64_t stored, int width, int digits) {
    static const uint64_t ends[] = {1, 100, 10000, 1000000};
    if (!digits)
        return 0;
    if (stored >= ends[width] || text_put(text, ".", 1) || text_number(text, stored, 2 * width))
        return 1;
    text->size -= (size_t)(2 * width - digits);
    return 0;
}

static int image_datetime(text_t *text, const column_t *column, const uint8_t *at) {
    int width = (column->digits + 1) / 2;
    uint64_t packed = big(at, 5);
    if (packed < (uint64_t)1 << 39)
        return IMAGE_ASK;
    packed -= (uint64_t)1 << 39;
    uint64_t months = packed >> 22, clock = packed & 0x1FFFF;
    return text_put(text, "\"", 1) || put_day(text, months / 13, months % 13, packed >> 17 & 31) || text_put(text, " ", 1) ||
           put_clock(text, clock >> 12, clock >> 6 & 63, clock & 63) ||
           put_fraction(text, big(at + 5, width), width, column->digits) || text_put(text, "\"", 1);
}

/* The day so many days after 1970 began (Gregorian, from the years of four centuries). */
static int put_date(text_t *text, uint64_t days) {
    uint64_t shifted = days + 719468, era = shifted / 146097, of_era = shifted % 146097;
    uint64_t year = (of_era - of_era / 1460 + of_era / 36524 - of_era / 146096) / 365;
    uint64_t of_year = of_era - (365 * year + year / 4 - year / 100), month = (5 * of_year + 2) / 153;
    uint64_t day = of_year - (153 * month + 2) / 5 + 1;
    month = month < 10 ? month + 3 : month - 9;
    return put_day(text, year + era * 400 + (month <= 2), month, day);
}

static int image_timestamp(text_t *text, const column_t *column, const uint8_t *at) {
    int width = (column->digits + 1) / 2;
    uint64_t seconds = big(at, 4), stored = big(at + 4, width), clock = seconds % 86400;
    if (text_put(text, "\"", 1))
        return IMAGE_ASK;
    if (!seconds && !stored ? text_put(text, "0000-00-00 00:00:00", 19)
                            : put_date(text, seconds / 86400) || text_put(text, " ", 1) ||
                                  put_clock(text, clock / 3600, clock / 60 % 60, clock % 60))
        return IMAGE_ASK;
    return put_fraction(text, stored, width, column->digits) || text_put(text, "\"", 1);
}

static int image_time(text_t *text, const column_t *column, const uint8_t *at) {
    int width = (column->digits + 1) / 2;
    int64_t packed = (int64_t)big(at, 3 + width) - ((int64_t)1 << (23 + 8 * width));
    uint64_t size = (uint64_t)(packed < 0 ? -packed : packed), clock = size >> 8 * width;
    return text_put(text, "\"-", packed < 0 ? 2 : 1) || put_clock(text, clock >> 12, clock >> 6 & 63, clock & 63) ||
           put_fraction(text, size & (((uint64_t)1 << 8 * width) - 1), width, column->digits) || text_put(text, "\"", 1);
}

/* A number of so many digits, nine of them in four bytes; those that make no nine first (before the point) or last. */
static int put_groups(text_t *text, const uint8_t *raw, int digits, int leading) {
    static const int widths[] = {0, 1, 1, 2, 2, 3, 3, 4, 4, 4};
    static const uint64_t ends[] = {1, 10, 100, 1000, 10000, 100000, 1000000, 10000000, 100000000, 1000000000};
    while (digits) {
        int group = leading && digits % 9 ? digits % 9 : digits < 9 ? digits : 9;
        uint64_t value = big(raw, widths[group]);
        if (value >= ends[group] || text_number(text, value, group))
            return -1;
        raw += widths[group];
        digits -= group;
    }
    return 0;
}

static int image_decimal(text_t *text, const column_t *column, const uint8_t *at) {
    uint8_t raw[40];
    uint8_t turned = at[0] & 0x80 ? 0 : 0xFF;
    static const int widths[] = {0, 1, 1, 2, 2, 3, 3, 4, 4};
    int before = column->whole / 9 * 4 + widths[column->whole % 9];
    for (int place = 0; place < column->width; place++)
        raw[place] = at[place] ^ turned;
    raw[0] ^= 0x80;
    if (text_put(text, "-", turned ? 1 : 0))
        return IMAGE_ASK;
    size_t start = text->size, skip = 0;
    if (put_groups(text, raw, column->whole, 1))
        return IMAGE_ASK;
    while (skip < text->size - start && text->bytes[start + skip] == '0')
        skip++;
    memmove(text->bytes + start, text->bytes + start + skip, text->size - start - skip);
    text->size -= skip;
    if (text->size == start && text_put(text, "0", 1))
        return IMAGE_ASK;
    return column->digits && (text_put(text, ".", 1) || put_groups(text, raw + before, column->digits, 0));
}

/* As Python shows it: the fewest digits that are this number. */
static int put_double(text_t *text, double value) {
    char *shown = PyOS_double_to_string(value, 'r', 0, Py_DTSF_ADD_DOT_0, NULL);
    int failed = !shown || text_put(text, shown, strlen(shown));
    PyMem_Free(shown);
    return failed;
}

static int image_double(text_t *text, const uint8_t *at) {
    double value;
    memcpy(&value, at, 8); /* the plan is made on machines that keep the low byte first */
    return value - value != 0 ? IMAGE_ASK : put_double(text, value);
}

static int image_float(text_t *text, const uint8_t *at) {
    float exact;
    memcpy(&exact, at, 4);
    if (exact - exact != 0)
        return IMAGE_ASK;
    for (int digits = 6; digits < 10; digits++) {
        char *shown = PyOS_double_to_string((double)exact, 'g', digits, 0, NULL);
        double made = shown ? PyOS_string_to_double(shown, NULL, NULL) : 0;
        PyMem_Free(shown);
        if (made >= -3.4028234663852886e38 && made <= 3.4028234663852886e38 && (float)made == exact)
            return made == 0 ? IMAGE_ASK : put_double(text, made);
    }
    return IMAGE_ASK;
}

static int image_string(text_t *text, const column_t *column, const uint8_t *at, size_t size) {
    switch (column->kind) {
    case UTF8: return text_quoted(text, at, size);
    case NARROW: return !is_ascii(at, size) || text_quoted(text, at, size);
    case BYTES: return text_base64(text, at, size, (size_t)column->whole);
    default: return !sure_json(at, size) || text_put(text, (const char *)at, size);
    }
}

static int image_number(text_t *text, const column_t *column, const uint8_t *at) {
    uint64_t value = little(at, column->width);
    int spare = 64 - 8 * column->width;
    switch (column->kind) {
    case SIGNED: return text_signed(text, (int64_t)(value << spare) >> spare);
    case UNSIGNED: return text_number(text, value, 1);
    case BITS: return text_number(text, big(at, column->width), 1);
    case YEARS: return text_number(text, value ? 1900 + value : 0, 1);
    default: return text_put(text, "\"", 1) || put_day(text, value >> 9, value >> 5 & 15, value & 31) || text_put(text, "\"", 1);
    }
}

/* The value at `*from`, which is moved behind it. Labels are left to the caller, who has them: it gets IMAGE_ASK. */
static int image_value(text_t *text, const column_t *column, const uint8_t *data, Py_ssize_t *from, Py_ssize_t end) {
    const uint8_t *at = data + *from;
    Py_ssize_t size = column->width;
    int failed;
    if (end - *from < size)
        return IMAGE_END;
    if (column->kind >= UTF8) {
        size_t length = (size_t)little(at, column->width);
        if ((uint64_t)(end - *from - size) < length)
            return IMAGE_END;
        failed = image_string(text, column, at + size, length);
        size += (Py_ssize_t)length;
    } else
        switch (column->kind) {
        case ASKED: case LABEL: case LABELS: return IMAGE_ASK;
        case FLOATS: failed = image_float(text, at); break;
        case DOUBLES: failed = image_double(text, at); break;
        case DECIMAL: failed = image_decimal(text, column, at); break;
        case TIMES: failed = image_time(text, column, at); break;
        case DATETIMES: failed = image_datetime(text, column, at); break;
        case TIMESTAMPS: failed = image_timestamp(text, column, at); break;
        default: failed = image_number(text, column, at);
        }
    if (failed)
        return IMAGE_ASK;
    *from += size;
    return IMAGE_DONE;
}

/* A value as SELECT shows it, written as selected.py writes it. What a server shows otherwise than it is meant here (zeros that
   fill) is asked for. */
static int is_whole(const uint8_t *at, size_t size) {
    size_t sign = size && at[0] == '-';
    if (size == sign || (at[sign] == '0' && size > 1))
        return 0;
    for (size_t place = sign; place < size; place++)
        if (at[place] < '0' || at[place] > '9')
            return 0;
    return 1;
}

static int selected_real(text_t *text, int kind, const uint8_t *at, size_t size) {
    char shown[64];
    if (!size || size >= sizeof shown)
        return IMAGE_ASK;
    memcpy(shown, at, size);
    shown[size] = 0;
    if (strspn(shown, "0123456789.-+eE") < size)
        return IMAGE_ASK;
    double value = PyOS_string_to_double(shown, NULL, NULL);
    if (PyErr_Occurred()) {
        PyErr_Clear();
        return IMAGE_ASK;
    }
    if (value - value != 0)
        return IMAGE_ASK;
    if (kind == REAL)
        return put_double(text, value);
    if (value > 3.4028234663852886e38 || value < -3.4028234663852886e38)
        return IMAGE_ASK;
    float narrow = (float)value;
    return image_float(text, (const uint8_t *)&narrow);
}

static int selected_value(text_t *text, const column_t *column, const uint8_t *at, size_t size) {
    const char *shown = (const char *)at;
    switch (column->kind) {
    case ASKED: return IMAGE_ASK;
    case WHOLE: return !is_whole(at, size) || text_put(text, shown, size);
    case POINT:
        return !size || !is_ascii(at, size) || (at[0] == '0' && size > 1 && at[1] != '.') || text_put(text, shown, size);
    case REAL: case SHORT_REAL: return selected_real(text, column->kind, at, size);
    case PLAIN:
        return !is_ascii(at, size) || text_put(text, "\"", 1) || text_put(text, shown, size) || text_put(text, "\"", 1);
    default: return image_string(text, column, at, size);
    }
}

#endif
