// The panels of a process, by its command: what each shows of the statistics. A panel is drawn anew with each record.

import {actions} from "./changes.js";
import {bar, bytes, count, css, figure, fill, h, lines, moment, rate, span, water} from "./parts.js";

const HOUR = 3600000, DAY = 24 * HOUR;

/** The panels of a command: name, width, title, when there is something to show, and how it is filled. */
export const PANELS = {
  broker: [
    {id: "purgatories", width: "w7", beside: true, title: "Waiting for a key or a deadline", fill: purgatories,
      say: "The broker's purgatories since its start: completed by what they waited for, timed out, or cancelled."},
    {id: "broker", width: "w6", title: "Broker", fill: broker},
    {id: "groups", width: "w6", title: "Groups and transactions", fill: groups},
    {id: "lags", width: "w12", title: "Lag", fill: lags, when: s => Object.keys(s.lags ?? {}).length,
      say: "Records behind what a group has committed: the groups that are most behind."},
  ],
  relay: [
    {id: "partitions", width: "w7", beside: true, title: "Partitions", fill: partitions,
      say: "Near is what waits in memory, in the wheel; the rest lies in files until it comes near."},
    {id: "due", width: "w12", title: "Due next", fill: dueNext},
    {id: "strip", width: "w12", title: "Due in the week ahead", fill: strip},
    {id: "lateness", width: "w6", title: "Lateness", fill: lateness},
    {id: "fullest", width: "w6", title: "Fullest keys", fill: fullest, when: s => Object.keys(s.fullest ?? {}).length,
      say: "Of the messages that are near. It is looked at every 5 seconds."},
    {id: "waits", width: "w12", title: "Due, and not delivered", fill: waits, when: s => s.waits?.length},
    {id: "letters", width: "w12", title: "The last dead letters", fill: letters, when: s => s.letters?.length},
  ],
  run: [
    {id: "times", width: "w8", title: "Event time", fill: times,
      say: "How far the newest event and the watermark are behind the clock. Below, where a batch's time goes."},
    {id: "counts", width: "w4", title: "Counts over all runs", fill: totals},
    {id: "watermarks", width: "w12", title: "Partitions that hold the watermark back", fill: watermarks, when: s => Object.keys(s.watermarks ?? {}).length,
      say: "The watermark is that of the partition which is furthest behind; what waits for its order waits for it."},
  ],
  program: [
    {id: "purgatories", width: "w7", beside: true, title: "Waiting for a key or a deadline", fill: purgatories,
      say: "The program's purgatories since they were made: completed by what they waited for, timed out, or cancelled."},
    {id: "timers", width: "w12", title: "Timers", fill: timers, say: "Since they were made; how late callbacks start."},
  ],
  cdc: [{id: "capture", width: "w6", title: "Capture", fill: capture}],
};

/** Of a counter: how much it grew a second, between the last two records; null if that is not known. */
function growth(source, of) {
  const {before, record, at, beforeAt} = source;
  if (!before || at <= beforeAt) return null;
  const grown = of(record.statistics) - of(before.statistics);
  return grown < 0 ? null : 1000 * grown / (at - beforeAt);
}

/** A line's points, of the records of the last five minutes. */
function points(source, of) {
  const now = source.history.at(-1)?.at ?? 0;
  return source.history.map(each => [(now - each.at) / 1000, of(each)]).filter(([ago, value]) => ago <= 300 && value !== null && value !== undefined);
}

function table(section) {
  return section.querySelector("table") ?? section.appendChild(h("table"));
}

/** An element in place of the last one. */
function put(section, selector, made) {
  const old = section.querySelector(selector);
  old ? old.replaceWith(made) : section.append(made);
}

function figures(section, ...each) {
  const row = h("div.row", null, ...each);
  const old = section.querySelector(".row");
  old ? old.replaceWith(row) : section.querySelector(".say").after(row);
}

function chart(section, ...series) {
  lines(section.querySelector("canvas.line") ?? section.appendChild(h("canvas.line", {role: "img", "aria-label": "the last five minutes"})), series);
}

function tip(section, ...words) {
  const line = h("p.tip", null, ...words);
  put(section, ".tip", line);
}

function purgatories(section, {record}) {
  const all = Object.entries(record.statistics.purgatories), keys = all.some(([, one]) => one.fullest);
  fill(table(section), ["for", ">waiting", ">completed", ">timed out", ">cancelled", "", ...(keys ? ["fullest keys"] : [])],
    all.map(([name, one]) => [
      name, count(one.delayed), count(one.completed), count(one.expired), count(one.cancelled),
      bar(one.completed + one.expired + one.cancelled, [one.completed], [one.expired, "c3"], [one.cancelled, "c5"]),
      ...(keys ? [Object.entries(one.fullest).map(([key, n]) => `${key}: ${count(n)}`).join(", ")] : []),
    ]));
}

function timers(section, {record}) {
  fill(table(section), ["timer", ">pending", ">fired", ">cancelled", ">failed", ">half", ">99 of 100", ">the latest"],
    Object.entries(record.statistics.timers).map(([name, one]) => [
      name, count(one.pending), count(one.fired), count(one.cancelled), count(one.failed), span(one.p50_ms), span(one.p99_ms), span(one.latest_ms),
    ]));
}

function broker(section, source) {
  const s = source.record.statistics;
  figures(section,
    figure(rate(growth(source, s => s.records_in)), "records in / s", "records-in"),
    figure(bytes(growth(source, s => s.record_bytes_in)), "in / s"), figure(bytes(growth(source, s => s.bytes_out)), "sent / s"),
    figure(s.flushes.last_ms === null ? "–" : s.flushes.last_ms.toFixed(1), "ms, the last flush"));
  chart(section, [points(source, each => each.recordsIn), water(1), true]);
  const role = s.replication.leads ? s.replication.peer ? `leads; follower ${s.replication.peer} lacks ${count(s.replication.lag)} records` : "leads" : `follows ${s.replication.peer}`;
  tip(section, `${count(s.records_in)} records in ${count(s.topics)} topics with ${count(s.partitions)} partitions; ${count(s.connections)} connections; ${role}; `
    + `${count(s.scrub.damaged)} damaged places`);
}

function groups(section, {record}) {
  const s = record.statistics;
  const rows = (kind, states) => Object.entries(states).map(([state, n]) => [kind, state, count(n)]);
  fill(table(section), ["", "state", ">how many"], [...rows("groups", s.groups), ...rows("transactional ids", s.transactions)]);
  tip(section, `Members of all groups: ${count(s.group_members)}.`);
}

function lags(section, {record}) {
  fill(table(section), ["group", "state", ">members", ">partitions", ">behind"],
    Object.entries(record.statistics.lags).map(([name, one]) => [name, one.state, count(one.members), count(one.partitions), count(one.lag)]));
}

function fullest(section, {record}) {
  const all = Object.entries(record.statistics.fullest), most = Math.max(...all.map(([, n]) => n));
  fill(table(section), ["key", ">messages", ""], all.map(([key, n]) => [key, count(n), bar(most, [n])]));
}

function waits(section, {record}) {
  fill(table(section), ["topic", ">messages", "why", "keys"], record.statistics.waits.map(one => [one.target, count(one.pending), h("span.chip.bad", null, one.why),
    Object.entries(one.keys).map(([key, n]) => `${key}: ${count(n)}`).join(", ")]));
}

function letters(section, {record}) {
  fill(table(section), ["put aside", "request", "why", "value"], record.statistics.letters.map(one => [moment(one.at_ms), one.request, one.reason, one.value]));
}

function watermarks(section, {record}) {
  const s = record.statistics;
  fill(table(section), ["partition", ">watermark behind now"], Object.entries(s.watermarks).map(([name, us]) => [name, us === null ? "nothing read yet" : us > 2.5e17 ? "ended" : span(Math.max(0, s.now_us - us) / 1000)]));
}

function lateness(section, {record}) {
  const s = record.statistics, edges = Object.entries(s.lateness_ms), all = edges.reduce((sum, [, n]) => sum + n, 0);
  const within = share => {
    let seen = 0;
    const found = edges.find(([, n]) => (seen += n) >= share * all && seen > 0);
    return all === 0 ? "–" : found[0] === "more" ? "more" : `≤ ${span(Number(found[0]))}`;
  };
  figures(section, figure(within(.5), "half"), figure(within(.99), "99 of 100"), figure(all ? span(s.lateness_worst_ms) : "–", "the latest"));
  const most = Math.max(1, ...edges.map(([, n]) => n));
  fill(table(section), [">at most", ">messages", ""], edges.filter(([, n]) => n).map(([edge, n]) => [edge === "more" ? "more" : span(Number(edge)), count(n), bar(most, [n])]));
  tip(section, `${count(s.delivered)} delivered, ${count(s.requests)} requests, ${count(s.dead_letters)} dead letters, ${count(s.missed)} missed`);
}

function partitions(section, {record}) {
  const s = record.statistics;
  fill(table(section), ["partition", ">pending", ">near", "next due", "", "state"], [
    ...Object.entries(s.partitions).map(([number, one]) => [
      `${s.topic}-${number}`, count(one.pending), count(one.near), moment(one.next_due_ms), bar(one.pending, [one.near]),
      one.held ? h("span.chip.bad", null, `${count(one.held)} wait for room on the disk`)
        : one.caught_up ? h("span.chip.ok", null, "delivers") : h("span.chip", null, `reads: ${count(one.position)} of ${count(one.reads_to)}`),
    ]),
    ...Object.entries(s.standby).map(([number, one]) => [
      `${s.topic}-${number}`, count(one.pending), "–", "–", "",
      one.why ? h("span.chip.bad", null, one.why) : h("span.chip", null, one.behind === null ? "stands by" : `stands by, ${count(one.behind)} behind`),
    ]),
  ]);
}

const DUE_MOST = 20, DUE_EVERY_MS = 2000;

/** The list of what is due next, asked for while it is seen; or the messages of the id that was searched for. */
function dueNext(section, source) {
  section.state ??= dueForm(section, source);
  const {state} = section;
  if (state.asks || document.hidden || source.why || Date.now() - state.asked < DUE_EVERY_MS) return;
  askDue(section, source);
}

function dueForm(section, source) {
  const input = h("input", {type: "search", name: "id", "aria-label": "Search by id", placeholder: "search by id", autocomplete: "off"});
  const form = h("form", {}, input, h("button", {type: "submit"}, "search"));
  form.addEventListener("submit", event => (event.preventDefault(), section.state.id = input.value.trim(), askDue(section, source)));
  input.addEventListener("search", () => input.value || (section.state.id = "", askDue(section, source)));
  section.append(form, h("table"), h("p.tip", {role: "status"}));
  return {id: "", asked: 0, asks: false};
}

async function askDue(section, source) {
  const {state} = section, id = state.id;
  Object.assign(state, {asks: true, asked: Date.now()});
  const path = id ? `ids/${encodeURIComponent(id)}` : `due/${DUE_MOST}`;
  try {
    const answer = await fetch(`ask/${section.dataset.at}/${path}`);
    if (answer.status === 404) state.asked = Infinity;  // a relay of an older version
    if (!answer.ok) throw new Error((await answer.text()).trim());
    const found = await answer.json();
    if (id !== state.id || section.querySelector("table").contains(document.activeElement)) return;
    id ? showFound(section, found, id) : showDue(section, found, source);
  } catch (error) {
    section.querySelector(".tip").textContent = `not known: ${error.message}`;
  } finally {
    state.asks = false;
  }
}

function showDue(section, {messages, known_to_ms}, source) {
  const now = Date.now();
  fill(section.querySelector("table"), ["due", ">in", "topic", "id", "key", "request", "waits for", ...(source.changes ? ["by hand"] : [])], messages.map(one => [
    moment(one.due_ms), one.due_ms < now ? `${span(now - one.due_ms)} late` : span(one.due_ms - now), one.target, one.id, one.key, one.origin,
    one.why ? h("span.chip.bad", null, one.why) : one.due_ms < now ? "the next turn" : one.recurs ? "its time; recurs" : "its time",
    ...(source.changes ? [actions(section.dataset.at, one, () => askDue(section, source))] : []),
  ]));
  const all = source.record.statistics.spans.reduce((sum, one) => sum + one.pending, 0);
  section.querySelector(".tip").textContent = known_to_ms ? `What is due from ${moment(known_to_ms)} on was too much to look through.`
    : messages.length ? `The next ${messages.length} of ${count(Math.max(all, messages.length))}.` : "Nothing is pending.";
}

function showFound(section, messages, id) {
  fill(section.querySelector("table"), ["due", "topic", "id", "request", "state", "recurs"], messages.map(one => [
    moment(one.due_ms), one.target, id, one.origin, h(one.state === "pending" ? "span.chip.ok" : "span.chip", null, one.state), one.cron ? `${one.cron} ${one.zone}` : "",
  ]));
  section.querySelector(".tip").textContent = messages.length ? `${messages.length} of the id ${id}; an empty search shows what is due next.`
    : `No message of the id ${id} is known to this relay; an empty search shows what is due next.`;
}

/** Columns of the strip: hours as far as the relay counts by the hour, then days. */
function columns(spans, now) {
  const begin = now - now % HOUR, coarse = spans.filter(one => one.end_ms - one.start_ms > HOUR && one.start_ms > 0).map(one => one.start_ms);
  const edge = Math.min(...coarse.filter(start => start >= begin), now + 2 * DAY - (now + 2 * DAY) % DAY);
  const found = [];
  for (let at = begin; at < edge; at += HOUR) found.push([at, at + HOUR]);
  for (let at = edge; at < begin + 7 * DAY; at += DAY) found.push([at, at + DAY]);
  return found;
}

/** A new strip of empty cells: "TOPIC COLUMN" -> its cell. */
function stripOf(section, cells, topics) {
  const made = new Map(), grid = h("div.strip", {role: "table", "aria-label": "Messages that are due, by time and topic"});
  grid.style.gridTemplateColumns = `92px ${cells.map(([from, to]) => to - from > HOUR ? "2fr" : "1fr").join(" ")}`;
  for (const topic of topics) {
    grid.append(h("span", {title: topic}, topic), ...cells.map(([from, to], n) => {
      const b = h(to - from > HOUR ? "b.day" : "b");
      made.set(`${topic} ${n}`, {b, title: `${topic}, ${moment(from)} to ${moment(to).slice(11)}`});
      return b;
    }));
  }
  grid.append(h("span"), ...cells.map(([from, to], n) => to - from > HOUR ? h("span.at", null, new Date(from).toLocaleDateString("en", {weekday: "short"}))
    : n % 6 ? h("i") : h("span.at", null, `${new Date(from).getHours()}h`)));
  put(section, ".strip", grid);
  return made;
}

function strip(section, {record, at}) {
  const spans = record.statistics.spans, cells = columns(spans, at), first = cells[0][0], last = cells.at(-1)[1];
  const topics = [...new Set(spans.map(one => one.target))].sort();
  const found = new Map();
  let past = 0, further = 0, until = 0;
  for (const one of spans) {
    const n = cells.findIndex(([from, to]) => one.start_ms >= from && one.start_ms < to);
    if (one.start_ms < first) past += one.pending;
    else if (one.start_ms >= last || one.end_ms > cells[n][1]) further += one.pending, until = Math.max(until, one.end_ms);
    else found.set(`${one.target} ${n}`, (found.get(`${one.target} ${n}`) ?? 0) + one.pending);
  }
  const key = JSON.stringify([first, last, cells.length, topics, css("--water")]);
  if (section.strip?.key !== key) section.strip = {key, made: stripOf(section, cells, topics.slice(0, 30))};
  const most = Math.ceil(Math.log1p(Math.max(1, ...found.values())));  // so rarely another one that few cells change their colour
  for (const [name, cell] of section.strip.made) {
    const value = found.get(name) ?? 0;
    if (cell.value === value && cell.most === most) continue;  // a strip has thousands of cells, and a second few of them change
    Object.assign(cell, {value, most});
    cell.b.dataset.pending = value;
    cell.b.title = `${cell.title}: ${count(value)}`;
    cell.b.style.background = value ? water(.2 + .8 * Math.log1p(value) / most) : "";
  }
  const all = spans.reduce((sum, one) => sum + one.pending, 0);
  tip(section, `${count(all)} are pending`, past ? `, ${count(past)} of them due before this hour` : "", further ? `; ${count(further)} lie further ahead, the last before ${moment(until).slice(0, 10)}` : "",
    topics.length > 30 ? `; ${topics.length - 30} topics more` : "");
}

const PHASES = ["latestOffset", "getBatch", "queryPlanning", "walCommit", "take", "sink", "commitOffsets"];

function times(section, source) {
  const s = source.record.statistics;
  const behind = us => us === null || us > 2.5e17 ? null : Math.max(0, s.now_us - us) / 1000;
  figures(section, figure(span(behind(s.newest_us)), "newest event behind now"), figure(span(behind(s.watermark_us)), "watermark behind now"),
    figure(rate(s.events_per_second), "events / s"), figure(s.behind === null ? "–" : count(Object.values(s.behind).reduce((a, b) => a + b, 0)), `${s.unit} not taken yet`));
  chart(section, [points(source, each => each.watermarkBehind), css("--hand")], [points(source, each => each.newestBehind), water(1), true]);
  const phases = PHASES.filter(name => s.phases?.[name]).map((name, n) => [name, s.phases[name].last_s, n ? `c${(n - 1) % 5 + 1}` : ""]);
  const whole = h("div.phases", null, bar(phases.reduce((sum, [, value]) => sum + value, 0), ...phases.map(([, value, kind]) => [value, kind])));
  put(section, ".phases", whole);
  tip(section, `batch ${s.batch_id ?? "–"}`, ...phases.flatMap(([name, value, kind]) => [h(kind ? `span.key.${kind}` : "span.key"), `${name} ${span(1000 * value)}`]));
}

function totals(section, {record}) {
  const s = record.statistics;
  fill(table(section), ["", ">"], Object.entries(s.totals ?? {}).map(([name, n]) => [name.replaceAll("_", " "), count(n)]));
}

function capture(section, source) {
  const s = source.record.statistics;
  figures(section, figure(rate(growth(source, s => s.changes)), "changes / s"), figure(count(s.changes), "changes in Kafka"), figure(count(s.dead_letters), "dead letters"));
  chart(section, [points(source, each => each.changes), water(1), true]);
  tip(section, `${count(s.transactions)} transactions, ${count(s.breaks)} breaks survived; up to ${s.place || "no place yet"}`);
}

/** What the lines are drawn of, of one record. */
export function noted(source) {
  const s = source.record.statistics, command = source.record.command;
  if (command === "broker") return {at: source.at, recordsIn: growth(source, s => s.records_in)};
  if (command === "cdc") return {at: source.at, changes: growth(source, s => s.changes)};
  if (command !== "run") return {at: source.at};
  const behind = us => us === null || us > 2.5e17 ? null : Math.max(0, s.now_us - us) / 1e6;
  return {at: source.at, newestBehind: behind(s.newest_us), watermarkBehind: behind(s.watermark_us)};
}
