/* Columns of plain values as a list for each row (ties.h), and back: what is carried, and what breaks ties.
 *
 * Rule 1: kinds are letters: w whole numbers, r real ones, o true or false, t texts, b bytes. lists.py says what has which.
 */
#ifndef WATERCLOCK_LISTS_H
#define WATERCLOCK_LISTS_H

#include "chunks.h"

namespace waterclock {

struct Values { /* a column; `valid` has a byte for each row, or is null where all are there */
    char kind;
    Texts texts;
    const int64_t *wholes = nullptr;
    const double *reals = nullptr;
    const uint8_t *valid = nullptr;

    bool is_null(int64_t row) const {
        return kind == 't' || kind == 'b' ? texts[row].is_null() : valid != nullptr && !valid[row];
    }
    void put(int64_t row, Writer &to) const {
        switch (kind) {
        case 'w': return to.whole(wholes[row]);
        case 'r': return to.real(reals[row]);
        case 'o': return to.boolean(wholes[row] != 0);
        case 'b': return to.binary(texts[row]);
        }
        need(is_utf8(texts[row]), "a text that is not UTF-8");
        to.text(texts[row]);
    }
};

struct Packed { /* a list for each row */
    Writer of;
    std::vector<size_t> ends{0};

    int64_t rows() const { return int64_t(ends.size()) - 1; }
    View operator[](int64_t row) const {
        size_t first = ends[size_t(row)], size = ends[size_t(row) + 1] - first;
        need(size <= UINT32_MAX, "more than 4 GB in the columns of one row");
        return View{of.to.data() + first, uint32_t(size)};
    }
};

/* With `each_in_a_list` a null is an empty list, and another value a list of one. */
inline void pack(const std::vector<Values> &columns, int64_t rows, bool each_in_a_list, Packed &to) {
    for (int64_t row = 0; row < rows; row++) {
        to.of.array(columns.size());
        for (const Values &column : columns) {
            bool is_null = column.is_null(row);
            if (each_in_a_list)
                to.of.array(is_null ? 0 : 1);
            else if (is_null)
                to.of.nil();
            if (!is_null)
                column.put(row, to.of);
        }
        to.ends.push_back(to.of.to.size());
    }
}

struct Carried { /* a column of what results carry: a byte for each says whether it has one, and whether that is null */
    char kind;
    std::vector<uint8_t> has, valid;
    std::vector<int64_t> wholes;
    std::vector<double> reals;
    std::vector<View> texts;

    Carried(char of, size_t results) : kind(of), has(results), valid(results) {
        kind == 'r' ? reals.resize(results) : kind == 't' || kind == 'b' ? texts.resize(results) : wholes.resize(results);
    }
    void take(size_t result, Reader &from) {
        has[result] = 1;
        if (from.took_nil())
            return;
        valid[result] = 1;
        switch (kind) {
        case 'w': wholes[result] = from.whole(); return;
        case 'r': reals[result] = from.real(); return;
        case 'o': wholes[result] = from.boolean(); return;
        case 'b': texts[result] = from.binary(); return;
        }
        texts[result] = from.text();
    }
};

inline bool carries_any(const Results &of) {
    return std::any_of(of.carried.begin(), of.carried.end(), [](View carried) { return !carried.is_null(); });
}
/* What the results carry, by columns, whose kinds are `kinds`. */
inline std::vector<Carried> carried_by(const Results &of, const Rules &rules, const std::string &kinds) {
    std::vector<Carried> columns;
    for (char kind : kinds)
        columns.emplace_back(kind, of.size());
    for (size_t result = 0; result < of.size(); result++) {
        if (of.carried[result].is_null())
            continue;
        Reader from(of.carried[result]);
        const std::vector<int32_t> &places = rules.carry[size_t(of.rule[result] - R_NAMED)];
        from.array_of(uint32_t(places.size()));
        for (int32_t place : places)
            columns[size_t(place)].take(result, from);
    }
    return columns;
}

} // namespace waterclock
#endif
