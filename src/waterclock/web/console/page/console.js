// The console: what the stream says of each process, which of them is looked at, and the sections that show it.

import {Dial, levels} from "./dial.js";
import {draw, hasMore} from "./panels.js";
import {fill, h} from "./parts.js";

const KEPT_MS = 300000;
const by = id => document.getElementById(id);
const sources = [];  // {name, why, changes, record, panels, at, history, dials}
const panels = new Map();  // "AT ID" -> its section
const dial = new Dial(by("dial"));
let chosen = location.hash.slice(1) || "all", wheel = null;

function sourceAt(at) {
  return sources[at] ??= {name: "", why: "", record: null, panels: [], at: 0, history: [], dials: {}};
}

/** What a process is called: by its command and what it serves. */
function called(source) {
  if (!source.record) return source.name;
  const {command, statistics} = source.record, own = statistics.topic ?? statistics.pipeline;
  return `${command === "run" ? "pipeline" : command} ${own || (source.name.includes(":") ? source.name.replace("127.0.0.1", "") : "")}`.trim();
}

function heard(event) {
  const told = JSON.parse(event.data), source = sourceAt(told.at), now = Date.now();
  Object.assign(source, {name: told.name, why: told.why, changes: told.changes});
  if (told.record && !told.why && told.heard !== source.heard) {
    Object.assign(source, {heard: told.heard, record: told.record, panels: told.panels, at: now});
    source.history.push({at: now, lines: Object.fromEntries(told.panels.map(each => [each.id, each.lines]))});
    while (source.history[0].at < now - KEPT_MS) source.history.shift();
  }
  drawSources();
  drawPanels(told.at);
}

function turned(event) {
  const told = JSON.parse(event.data);
  sourceAt(told.at).dials = told.dials;
  drawWheel();
}

const shown = at => chosen === "all" || chosen === String(at) || !sources[Number(chosen)];

function drawSources() {
  const button = (key, text, away, why) => {
    const made = h(away ? "button.away" : "button", {type: "button", title: why, onclick: () => choose(key)}, h("i"), text);
    made.setAttribute("aria-pressed", String(key === chosen));
    made.dataset.key = key;
    return made;
  };
  const buttons = sources.map((source, at) => button(String(at), called(source) + (source.why ? " is away" : ""), source.why, source.why));
  if (sources.length > 1) buttons.unshift(button("all", "all", sources.some(source => source.why), ""));
  const nav = by("sources"), focused = document.activeElement?.dataset?.key;
  const words = made => made.map(each => each.outerHTML).join();
  if (words(buttons) === words([...nav.children])) return;
  nav.replaceChildren(...buttons);
  if (focused !== undefined) [...nav.children].find(each => each.dataset.key === focused)?.focus();
}

function choose(key) {
  chosen = key;
  history.replaceState(null, "", `#${key}`);
  drawSources();
  sources.forEach((_, at) => drawPanels(at));
  drawWheel();
}

/** Of a program whose loop is busy: how old what it said is. */
function old(age_s) {
  if (age_s === undefined || age_s === 0) return "";
  return h("span.chip.bad", null, age_s === null ? "its loop is busy, and has not answered yet" : `its loop is busy: this is of ${age_s.toFixed(0)} s ago`);
}

function drawPanels(at) {
  const source = sources[at];
  if (!source.record) return;
  for (const panel of source.panels) {
    const key = `${at} ${panel.id}`;
    if (!panels.has(key)) {
      const title = h("h2", null, `${panel.title} `);
      const made = h(`section.w${panel.width}`, {}, title, h("p.say", {hidden: !panel.say}, panel.say));
      made.classList.toggle("beside", panel.width === 7);  // the wheel takes the other five columns
      made.dataset.panel = panel.id;
      made.dataset.at = at;
      by("levels").parentElement.append(made);
      panels.set(key, made);
    }
    const section = panels.get(key);
    section.hidden = !shown(at) || !hasMore(panel);
    section.classList.toggle("away", Boolean(source.why));
    section.querySelector("h2").replaceChildren(`${panel.title} `, h("span.chip", null, called(source)), source.why ? h("span.chip.bad", null, `away: ${source.why}`) : old(source.record.statistics.age_s));
    if (!section.hidden) draw(section, panel, source);
  }
  const beside = document.querySelectorAll("section.beside:not([hidden])").length;
  by("wheel").style.gridRow = `span ${Math.min(beside, 2) + 1}`;
}

function drawWheel() {
  const all = sources.flatMap((source, at) => shown(at) ? Object.keys(source.dials).map(name => [`${at} ${name}`, `${called(source)} · ${name}`]) : []);
  const which = by("which"), known = [...which.options].map(each => `${each.value} ${each.text}`).join();
  if (known !== all.map(each => each.join(" ")).join()) which.replaceChildren(...all.map(([key, text]) => h("option", {value: key}, text)));
  const key = all.some(([key]) => key === wheel) ? wheel : fullest(all);
  for (const id of ["wheel", "levels"]) by(id).hidden = key === undefined;
  if (key === undefined) return;
  which.value = key;
  const [at] = key.split(" ", 1), found = sources[at].dials[key.slice(at.length + 1)];
  if (dial.name !== key) dial.show(key);
  dial.update(found);
  fill(by("levels").querySelector("table"), ["level", "tick", "sees", ">buckets in use", ">timers", ""], levels(found));
  by("wheel").classList.toggle("away", Boolean(sources[at].why));
}

/** Until one is chosen: of the first process that has wheels the one that was shown, while something waits in it, or the one with most. */
function fullest(all) {
  const size = ([key]) => sources[key.split(" ", 1)[0]].dials[key.slice(key.indexOf(" ") + 1)].levels.flatMap(level => Object.values(level)).reduce((a, b) => a + b, 0);
  const first = all.filter(([key]) => key.split(" ", 1)[0] === all[0][0].split(" ", 1)[0]);
  const last = first.find(([key]) => key === dial.name);
  return last && size(last) ? dial.name : first.sort((a, b) => size(b) - size(a))[0]?.[0];
}

function begin() {
  const stream = new EventSource("events");
  stream.addEventListener("source", heard);
  stream.addEventListener("dials", turned);
  stream.onopen = () => (by("away").hidden = true);
  stream.onerror = () => {
    by("away").textContent = `The console itself does not answer since ${new Date().toLocaleTimeString("sv")}: what is shown is of that time. It is asked again each second.`;
    by("away").hidden = false;
    if (stream.readyState === EventSource.CLOSED) stream.close(), setTimeout(begin, 1000);
  };
  addEventListener("pagehide", () => stream.close(), {once: true});
}

by("which").addEventListener("change", event => (wheel = event.target.value, drawWheel()));
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => (dial.draw(), sources.forEach((_, at) => drawPanels(at))));
document.addEventListener("visibilitychange", () => document.hidden || dial.draw());
setInterval(() => (by("now").textContent = new Date().toLocaleTimeString("sv")), 1000);
begin();
