/* Whether bytes are JSON for certain, so that Python's decoder need not be asked whether they are.

Rule 1: a no is no refusal: null, what is nested deeply, numbers of many digits and all that is odd are left to the decoder. */
#ifndef WATERCLOCK_SURE_H
#define WATERCLOCK_SURE_H

#include "text.h"

#define SURE_DEPTH 64
#define SURE_DIGITS 1000

typedef struct {
    const uint8_t *at, *end;
} sure_t;

static void sure_spaces(sure_t *json) {
    while (json->at < json->end && (*json->at == ' ' || *json->at == '\t' || *json->at == '\n' || *json->at == '\r'))
        json->at++;
}

static int sure_string(sure_t *json) {
    for (json->at++; json->at < json->end;) {
        uint8_t byte = *json->at;
        if (byte == '"') {
            json->at++;
            return 1;
        }
        if (byte < 0x20)
            return 0;
        if (byte == '\\') { /* \u is seldom: the decoder is asked */
            if (json->end - json->at < 2 || !json->at[1] || !strchr("\"\\/bfnrt", json->at[1]))
                return 0;
            json->at += 2;
        } else if (byte >= 0x80) {
            int width = utf8_width(json->at, (size_t)(json->end - json->at));
            if (!width)
                return 0;
            json->at += width;
        } else
            json->at++;
    }
    return 0;
}

static int sure_digits(sure_t *json) {
    const uint8_t *start = json->at;
    while (json->at < json->end && *json->at >= '0' && *json->at <= '9')
        json->at++;
    return json->at > start && json->at - start < SURE_DIGITS;
}

static int sure_number(sure_t *json) {
    if (*json->at == '-')
        json->at++;
    const uint8_t *start = json->at;
    if (!sure_digits(json) || (*start == '0' && json->at - start > 1))
        return 0;
    if (json->at < json->end && *json->at == '.') {
        json->at++;
        if (!sure_digits(json))
            return 0;
    }
    if (json->at < json->end && (*json->at | 32) == 'e') {
        json->at++;
        if (json->at < json->end && (*json->at == '+' || *json->at == '-'))
            json->at++;
        return sure_digits(json);
    }
    return 1;
}

static int sure_value(sure_t *json, int depth);

static int sure_members(sure_t *json, int depth, uint8_t closing) {
    json->at++;
    sure_spaces(json);
    if (json->at < json->end && *json->at == closing) {
        json->at++;
        return 1;
    }
    while (json->at < json->end) {
        if (closing == '}') {
            if (*json->at != '"' || !sure_string(json))
                return 0;
            sure_spaces(json);
            if (json->at == json->end || *json->at++ != ':')
                return 0;
        }
        if (!sure_value(json, depth + 1))
            return 0;
        if (json->at == json->end)
            return 0;
        uint8_t next = *json->at++;
        if (next == closing)
            return 1;
        if (next != ',')
            return 0;
        sure_spaces(json);
    }
    return 0;
}

static int sure_word(sure_t *json, const char *word) {
    size_t size = strlen(word);
    if ((size_t)(json->end - json->at) < size || memcmp(json->at, word, size))
        return 0;
    json->at += size;
    return 1;
}

/* One value, with the spaces before and behind it. */
static int sure_value(sure_t *json, int depth) {
    int sure = 0;
    sure_spaces(json);
    if (json->at == json->end || depth > SURE_DEPTH)
        return 0;
    switch (*json->at) {
    case '{': sure = sure_members(json, depth, '}'); break;
    case '[': sure = sure_members(json, depth, ']'); break;
    case '"': sure = sure_string(json); break;
    case 't': sure = sure_word(json, "true"); break;
    case 'f': sure = sure_word(json, "false"); break;
    case 'n': sure = depth > 0 && sure_word(json, "null"); break;
    default: sure = sure_number(json);
    }
    sure_spaces(json);
    return sure;
}

static int sure_json(const uint8_t *bytes, size_t size) {
    sure_t json = {bytes, bytes + size};
    return sure_value(&json, 0) && json.at == json.end;
}

#endif
