/* Lists of values as MessagePack: what results carry of an event, and what orders events of one time.
 *
 * Rule 1: who reads a list has seen that it is one, by `Reader::values` or `ties_in`; the columns that it is made of are plain.
 * Rule 2: values of one column are of one kind; where those of a damaged state are not, that is `Damaged`.
 */
#ifndef WATERCLOCK_TIES_H
#define WATERCLOCK_TIES_H

#include <string>
#include <vector>

#include "msgpack.h"

namespace waterclock {

/* The columns of `tie` of a row, each in a list of its own, which is empty for null; what it is made of. */
inline View ties_in(Reader &from, uint32_t columns) {
    View whole = Reader(from).skip();
    for (from.array_of(columns); columns > 0; columns--) {
        uint32_t values = from.array();
        if (values > 1)
            throw Damaged("more than one value in a column that breaks ties");
        if (values == 1 && from.is_text())
            from.text();
        else if (values == 1)
            from.rank();
    }
    return whole;
}

/* Less than 0, 0 or more: texts by code point, false before true, whole numbers. */
inline int compared_values(Reader &a, Reader &b) {
    if (a.is_text() && b.is_text()) {
        View one = a.text(), other = b.text();
        size_t both = one.size < other.size ? one.size : other.size;
        int order = both == 0 ? 0 : memcmp(one.at, other.at, both);
        return order != 0 ? order : (one.size > other.size) - (one.size < other.size);
    }
    int64_t one = a.rank(), other = b.rank();
    return (one > other) - (one < other);
}

inline int compared(View a, View b) {
    if (a == b)
        return 0;
    Reader one(a), other(b);
    uint32_t columns = one.array();
    other.array();
    for (int order; columns > 0; columns--) {
        bool has_one = one.array() > 0, has_other = other.array() > 0;
        if (has_one && has_other)
            order = compared_values(one, other);
        else
            order = has_one - has_other;
        if (order != 0)
            return order;
    }
    return 0;
}

/* A list of some of the values of a list, by their places. */
inline std::string picked(View list, const std::vector<int32_t> &places) {
    std::vector<View> values;
    Reader from(list);
    for (uint32_t left = from.array(); left > 0; left--)
        values.push_back(from.skip());
    Writer to;
    to.array(places.size());
    for (int32_t place : places)
        to.packed(values[size_t(place)]);
    return std::move(to.to);
}

} // namespace waterclock
#endif
