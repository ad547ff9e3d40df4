// Step by step: the records of `waterclock trace`, drawn by the console's dial. Nothing is computed but where a hand stands.

import {Dial} from "./dial.js";
import {count, fill, h} from "./parts.js";

const by = id => document.getElementById(id);
const dial = new Dial(by("dial"));
let walk = null;

/** What the dial draws of a step. */
function dialOf({after}) {
  const sizes = after.level_tick.map((_, level) => walk.wheel_size[Math.min(level, walk.wheel_size.length - 1)]);
  const levels = after.level_tick.map(() => ({}));
  for (const {level, bucket, timers} of after.buckets) levels[level - 1][bucket] = timers.length;
  const hands = after.current_time.map((time, level) => Math.floor(time / after.level_tick[level]) % sizes[level]);
  return {tick_ms: walk.tick_ms, size: sizes[0], sizes, levels, hands};
}

/** A length of time, of milliseconds, as the sentences have it: exact. */
function exact(ms) {
  if (Math.abs(ms) < 1000) return `${ms}ms`;
  if (ms < 0) return `-${exact(-ms)}`;
  const hours = Math.floor(ms / 3600000), minutes = Math.floor(ms / 60000) % 60, seconds = ms % 60000 / 1000;
  return [[hours, "h"], [minutes, "m"], [seconds, "s"]].filter(([value]) => value).map(([value, unit]) => `${value}${unit}`).join("");
}

const since = ms => exact(ms - walk.start_ms);
const range = (start, length) => `[${since(start)}, ${since(start + length)})`;

function show(number) {
  const step = walk.steps[number], {after} = step, found = dialOf(step);
  by("step").value = number;
  by("step").setAttribute("aria-valuetext", step.said);
  by("number").textContent = `${number} of ${walk.steps.length - 1}`;
  by("said").textContent = step.said;
  by("back").disabled = number === 0;
  by("on").disabled = number === walk.steps.length - 1;
  dial.update(found);
  fill(by("levels"), ["level", "tick", ">buckets", "clock", "covers", ">timers"], found.levels.map((level, n) => [
    String(n + 1), exact(after.level_tick[n]), String(found.sizes[n]), since(after.current_time[n]),
    range(after.current_time[n], after.level_tick[n] * found.sizes[n]), count(Object.values(level).reduce((a, b) => a + b, 0)),
  ]));
  const timers = entry => after.buckets.find(one => one.level === entry.level && one.bucket === entry.bucket).timers;
  fill(by("queue"), ["level", "bucket", "covers", "timers"], after.queue.map(entry => [
    String(entry.level), String(entry.bucket), range(entry.expiration, after.level_tick[entry.level - 1]), timers(entry).join(", "),
  ]));
}

function choose(found) {
  walk = found;
  by("note").textContent = `${walk.note}. Times are since the start; rounding ${walk.rounding}.`;
  by("step").max = walk.steps.length - 1;
  dial.show(walk.name);
  show(0);
}

async function begin() {
  try {
    const walks = await (await fetch("steps.json")).json();
    by("which").append(...walks.map(({name}) => h("option", {value: name}, name)));
    by("which").onchange = () => choose(walks.find(({name}) => name === by("which").value));
    by("step").oninput = () => show(Number(by("step").value));
    by("back").onclick = () => show(Number(by("step").value) - 1);
    by("on").onclick = () => show(Number(by("step").value) + 1);
    choose(walks[0]);
  } catch (error) {
    by("away").textContent = `The steps cannot be read: ${error.message}`;
    by("away").hidden = false;
  }
}

begin();
