// The panels of a process, as the server describes them. A panel is drawn anew with each record.

import {actions} from "./changes.js";
import {bar, count, css, figure, fill, h, lines, moment, span, water} from "./parts.js";

const HOUR = 3600000, DAY = 24 * HOUR;

/** A panel of waterclock/web/panel.py: its figures, lines, table and note, as far as it has them; the last two are drawn here. */
export function draw(section, panel, source) {
  if (panel.id in OWN) return OWN[panel.id](section, source);
  if (panel.figures.length) put(section, ".row", h("div.row", null, ...panel.figures.map(each => figure(...each))));
  if (panel.lines.length) chart(section, source, panel);
  const words = panel.is_stacked ? stacked(section, panel.rows) : [];
  if (panel.heads.length && !panel.is_stacked) fill(section.querySelector("table") ?? section.appendChild(h("table")), panel.heads, cellsOf(panel));
  if (panel.note) tip(section, panel.note, ...words);
}

/** Whether there is anything to show: known before it is drawn, since a canvas that is hidden has no width. */
export const hasMore = panel => panel.id in OWN || panel.rows.length > 0 || panel.figures.length > 0 || panel.note !== "";

const OWN = {due: dueNext, strip};
const KINDS = {
  bar: (share, more) => bar(1, [share], ...more),
  chip: (text, kind) => h(kind ? `span.chip.${kind}` : "span.chip", null, text),
  moment,
};

/** The cells as they are drawn: a text, or an object with the one kind that it is. */
const cellsOf = ({rows}) => rows.map(row => row.map(cell => {
  if (typeof cell === "string") return cell;
  const [[kind, of]] = Object.entries(cell);
  return KINDS[kind](...of);
}));

/** One bar of the parts in the rows; what each is. */
function stacked(section, rows) {
  const parts = rows.map(([name, text, {bar: [share]}], n) => [name, text, share, n ? `c${(n - 1) % 5 + 1}` : ""]);
  put(section, ".phases", h("div.phases", null, bar(parts.reduce((sum, [, , share]) => sum + share, 0), ...parts.map(([, , share, kind]) => [share, kind]))));
  return parts.flatMap(([name, text, , kind]) => [h(kind ? `span.key.${kind}` : "span.key"), `${name} ${text}`]);
}

/** An element in place of the last one. */
function put(section, selector, made) {
  const old = section.querySelector(selector);
  old ? old.replaceWith(made) : section.append(made);
}

/** The last five minutes of the panel's values. */
function chart(section, source, {id, lines: values}) {
  const now = source.history.at(-1).at;
  const series = values.map((_, n) => [source.history.map(each => [(now - each.at) / 1000, each.lines[id]?.[n] ?? null]).filter(([, value]) => value !== null),
    n < values.length - 1 ? css("--hand") : water(1), n === values.length - 1]);
  lines(section.querySelector("canvas.line") ?? section.appendChild(h("canvas.line", {role: "img", "aria-label": "the last five minutes"})), series);
}

function tip(section, ...words) {
  const line = h("p.tip", null, ...words);
  put(section, ".tip", line);
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

function showDue(section, {panel, messages}, source) {
  const buttons = one => source.changes ? [actions(section.dataset.at, one, () => askDue(section, source))] : [];
  fill(section.querySelector("table"), [...panel.heads, ...(source.changes ? ["by hand"] : [])], cellsOf(panel).map((row, n) => [...row, ...buttons(messages[n])]));
  const all = source.record.statistics.spans.reduce((sum, one) => sum + one.pending, 0);
  section.querySelector(".tip").textContent = panel.note || `The next ${messages.length} of ${count(Math.max(all, messages.length))}.`;
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
