/* Deadlines as waterclock.streaming.state.states stores them: the plain engine reads what is written here, and the other way round.
 *
 *     a chunk     [[place, deadline], ...] beside the rows of the deliveries
 *     a deadline  [due, kind, key, a, b]; of a delay that carries, b is [source, what is carried]
 *
 * Rule 1: nothing that is read is believed: what does not fit is `Damaged`, and leads to no place outside of the engine.
 */
#ifndef WATERCLOCK_CHUNKS_H
#define WATERCLOCK_CHUNKS_H

#include "engine.h"
#include "msgpack.h"

namespace waterclock {

inline View literal(const char *text) { return View{text, uint32_t(strlen(text))}; }
inline bool is(View text, const char *name) { return text == literal(name); }
inline void need(bool holds, const char *what) {
    if (!holds)
        throw Damaged(what);
}
inline int32_t rule_of(Reader &from, size_t count) {
    int64_t rule = from.whole();
    need(rule >= 0 && rule < int64_t(count), "the number of a rule that there is not");
    return int32_t(rule);
}

class Chunks {
  public:
    Chunks(Core &of, bool has_numbers) : core(of), keys_are_numbers(has_numbers) {}

    /* The deadlines of a chunk pass: those of `others`, each at its place among the deliveries, whose rows begin at `first`. */
    void pass(View others, const Texts &keys, const Texts &ids, const int64_t *dues, int64_t first) {
        Reader from(others);
        int64_t delivery = 0, place = 0;
        auto deliver = [&] {
            View key = keys[delivery], id = ids[delivery];
            need(!key.is_null() && !id.is_null() && is_utf8(key) && is_utf8(id), "a delivery without a key, or an id");
            core.deadlines.pass(Deadline{dues[delivery], first + delivery, key, id, View{}, 0, DELIVER});
            delivery++, place++;
        };
        for (uint32_t i = from.array(); i > 0; i--) {
            from.array_of(2);
            int64_t at = from.whole();
            while (place < at && delivery < keys.rows)
                deliver();
            core.deadlines.pass(read(from));
            place++;
        }
        while (delivery < keys.rows)
            deliver();
        need(from.is_done(), "a chunk with something behind it");
    }

    /* A slot's fresh deadlines as a chunk: `rows` gets the numbers of the rows of its deliveries. */
    void pack(const std::vector<Deadline> &slot, Writer &to, std::vector<int64_t> &rows) {
        size_t others = 0;
        for (const Deadline &one : slot)
            others += one.kind != DELIVER;
        to.array(others);
        for (size_t place = 0; place < slot.size(); place++) {
            if (slot[place].kind == DELIVER) {
                rows.push_back(slot[place].row);
                continue;
            }
            to.array(2);
            to.whole(int64_t(place));
            put(slot[place], to);
        }
    }

    Deadline read(Reader &from) {
        from.array_of(5);
        Deadline made{from.whole(), -1, View{}, View{}, View{}, 0, 0};
        View kind = from.text();
        made.key = key(from);
        if (is(kind, "complete") || is(kind, "overdue")) {
            made.kind = is(kind, "complete") ? COMPLETE : OVERDUE;
            from.nil(), from.nil();
            return made;
        }
        if (is(kind, "emit")) {
            made.kind = EMIT;
            made.rule = delay_named(from.text());
            if (from.is_array())
                return with_carried(made, from);
        } else {
            need(is(kind, "expired") || is(kind, "quiet"), "a deadline of an unknown kind");
            made.kind = is(kind, "expired") ? EXPIRED : QUIET;
            made.rule = rule_of(from, made.kind == EXPIRED ? core.rules.expect_us.size() : core.rules.quiet_us.size());
        }
        made.source = from.text();
        return made;
    }
    void put(const Deadline &one, Writer &to) {
        static const char *const NAMES[] = {"", "emit", "expired", "", "", "", "quiet"};
        to.array(5);
        to.whole(one.due);
        to.text(literal(one.kind == COMPLETE ? "complete" : one.kind == OVERDUE ? "overdue" : NAMES[one.kind]));
        put_key(one.key, to);
        if (one.kind == COMPLETE || one.kind == OVERDUE) {
            to.nil(), to.nil();
            return;
        }
        if (one.kind == EMIT)
            to.text(View{core.rules.emits[size_t(one.rule)].data(), uint32_t(core.rules.emits[size_t(one.rule)].size())});
        else
            to.whole(one.rule);
        if (!one.carried.is_null())
            to.array(2);
        to.text(one.source);
        to.packed(one.carried);
    }
    /* What the results of a rule carry, as it was packed. */
    View carried(Reader &from, int32_t rule) {
        size_t columns = core.rules.carry[size_t(rule - R_NAMED)].size();
        View found = from.values(uint32_t(columns));
        need(columns > 0, "columns that a rule does not carry");
        return found;
    }

  private:
    Core &core;
    bool keys_are_numbers;
    std::deque<std::string> texts; /* of keys that are stored as numbers */

    Deadline with_carried(Deadline made, Reader &from) {
        from.array_of(2);
        made.source = from.text();
        made.carried = carried(from, core.rules.delay_name(made.rule));
        return made;
    }
    View key(Reader &from) {
        if (!keys_are_numbers)
            return from.text();
        texts.push_back(std::to_string(from.whole()));
        return View{texts.back().data(), uint32_t(texts.back().size())};
    }
    void put_key(View text, Writer &to) {
        keys_are_numbers ? to.whole(std::stoll(std::string(text.at, text.size))) : to.text(text);
    }
    int32_t delay_named(View name) const {
        for (size_t rule = 0; rule < core.rules.emits.size(); rule++)
            if (core.rules.emits[rule] == std::string_view(name.at, name.size))
                return int32_t(rule);
        throw Damaged("a deadline of a delay that the rules do not have");
    }
};

} // namespace waterclock
#endif
