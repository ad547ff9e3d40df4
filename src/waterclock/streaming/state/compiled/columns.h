/* Between columns and the engine: rows in, results and states out. What _engine.pyx calls. */
#ifndef WATERCLOCK_COLUMNS_H
#define WATERCLOCK_COLUMNS_H

#include "lists.h"
#include "result_id.h"
#include "stored.h"
#include "wanted.h"

namespace waterclock {

struct States { /* of all keys that have one */
    std::vector<int32_t> key_ends{0}, packed_ends{0}, held;
    std::vector<uint32_t> hashes;
    std::vector<int64_t> gone_by, rows;
    std::string keys;
    Writer packed;
};
struct Slot { /* the fresh deadlines of one */
    int level;
    int64_t slot, deliveries;
    std::string others;
};
struct Incoming { /* rows as columns; null where the rules do not ask */
    Texts ids, types;
    const int64_t *times = nullptr, *numbers = nullptr, *delivers = nullptr, *promised = nullptr;
    const uint64_t *holds = nullptr;
    const Packed *carried = nullptr, *ties = nullptr;
};

inline void add_type(Rules &rules, const std::string &kept, int32_t plan) {
    rules.types[std::string_view(kept.data(), kept.size())] = plan;
}
inline void make_room(Engine &engine, int64_t rows) {
    engine.core.rows.resize(size_t(rows));
    engine.core.promised.resize(size_t(rows * engine.core.rules.due_columns), NONE);
    engine.core.holds.resize(size_t(rows) * engine.core.rules.words());
    if (engine.core.has_lists())
        engine.core.lists.resize(size_t(rows));
}
inline void rows_of(Engine &engine, const Incoming &from, int64_t first) {
    Core &core = engine.core;
    for (int64_t i = 0; i < from.ids.rows; i++) {
        Row &row = core.rows[size_t(first + i)];
        row.time = from.times[i];
        row.id = from.ids[i];
        if (from.types.offsets != nullptr)
            row.type = from.types[i];
        if (from.numbers != nullptr)
            row.number = from.numbers[i];
        if (from.delivers != nullptr)
            row.deliver = from.delivers[i];
        if (from.carried != nullptr)
            core.lists[size_t(first + i)] = Lists{(*from.carried)[i], (*from.ties)[i]};
    }
    size_t columns = size_t(core.rules.due_columns), words = core.rules.words();
    if (from.promised != nullptr && from.ids.rows > 0)
        memcpy(&core.promised[size_t(first) * columns], from.promised, sizeof(int64_t) * size_t(from.ids.rows) * columns);
    if (from.holds != nullptr && from.ids.rows > 0)
        memcpy(&core.holds[size_t(first) * words], from.holds, sizeof(uint64_t) * size_t(from.ids.rows) * words);
}
inline Texts part(const Texts &of, int64_t start, int64_t count) {
    return Texts{of.offsets + start, of.bytes, of.valid, count, of.first + start};
}

inline void end(std::vector<int32_t> &ends, size_t size) {
    if (size > INT32_MAX)
        throw std::length_error("more than 2 GB of state in one batch of a bucket");
    ends.push_back(int32_t(size));
}
inline void states_of(Engine &engine, Stored &stored, States &to) {
    for (uint32_t key = 0; key < engine.core.keys.all.size(); key++) {
        size_t before = to.rows.size();
        int64_t gone_by = NONE;
        if (!stored.state_of(key, to.packed, to.rows, gone_by))
            continue;
        const Keys::Key &of = engine.core.keys[key];
        to.keys.append(of.text.at, of.text.size);
        end(to.key_ends, to.keys.size());
        end(to.packed_ends, to.packed.to.size());
        to.held.push_back(int32_t(to.rows.size() - before));
        to.hashes.push_back(of.crc);
        to.gone_by.push_back(gone_by);
    }
}
inline void wake_all(Stored &stored, const Texts &keys, const Texts &packed, const int32_t *held, int64_t first, int64_t rows) {
    int64_t end = first + rows;
    for (int64_t i = 0; i < keys.rows; i++) {
        need(held[i] >= 0 && held[i] <= end - first, "states that hold more rows than there are");
        stored.wake(keys[i], packed[i], first, held[i]);
        first += held[i];
    }
    need(first == end, "rows that no state holds");
}
inline std::vector<Slot> fresh_of(Engine &engine, Stored &stored, std::vector<int64_t> &rows) {
    std::vector<Slot> slots;
    for (int level = 0; level < LEVELS; level++) {
        for (auto &[slot, deadlines] : engine.core.deadlines.fresh[level]) {
            size_t before = rows.size();
            Writer to;
            stored.chunks.pack(deadlines, to, rows);
            slots.push_back(Slot{level, slot, int64_t(rows.size() - before), std::move(to.to)});
        }
        engine.core.deadlines.fresh[level].clear();
    }
    return slots;
}
/* The least due time of the fresh deadlines of the first slot of a level that has any; `slot` says which. */
inline int64_t first_fresh(const Engine &engine, int level, int64_t &slot) {
    const auto &fresh = engine.core.deadlines.fresh[level];
    if (fresh.empty())
        return NONE;
    slot = fresh.begin()->first;
    int64_t due = INT64_MAX;
    for (const Deadline &one : fresh.begin()->second)
        due = std::min(due, one.due);
    return due;
}
inline std::vector<int64_t> fresh_up_to(const Engine &engine, int level, int64_t last) {
    std::vector<int64_t> slots;
    for (auto &[slot, deadlines] : engine.core.deadlines.fresh[level])
        if (slot <= last)
            slots.push_back(slot);
    return slots;
}

/* Texts one after the other, and where each ends. */
inline void texts_of(const std::vector<View> &texts, int32_t *ends, char *bytes) {
    int32_t size = 0;
    *ends++ = 0;
    for (const View &text : texts) {
        if (text.size)
            memcpy(bytes + size, text.at, text.size);
        *ends++ = size += int32_t(text.size);
    }
}
/* Ids of results into `hex`, 32 digits each; the places of those that Python must make. */
inline std::vector<int64_t> ids_of(const Results &of, const std::vector<std::string> &kinds,
                                   const std::vector<std::string> &rules, bool has_numbers, char *hex) {
    std::vector<int64_t> others;
    std::string buffer;
    for (size_t i = 0; i < of.size(); i++, hex += 32)
        if (!result_id(kinds[of.kind[i]], has_numbers, of.key[i], rules[size_t(of.rule[i])], of.source[i], hex, buffer))
            others.push_back(int64_t(i));
    return others;
}

} // namespace waterclock
#endif
