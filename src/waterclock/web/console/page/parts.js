// What the panels are built of: elements, tables, numbers for people, lines. No text of a process is ever read as HTML.

/** An element: `h("td.n", {title: "x"}, "text", other)`. */
export function h(name, own, ...inner) {
  const [tag, ...classes] = name.split(".");
  const made = document.createElement(tag);
  made.classList.add(...classes);
  for (const [key, value] of Object.entries(own ?? {})) key in made ? (made[key] = value) : made.setAttribute(key, value);
  made.append(...inner.filter(each => each !== null && each !== undefined));
  return made;
}

/** Rows for a table: the head as names, those with a leading > are numbers, an empty one is of bars; cells are texts or elements. */
export function fill(table, head, rows) {
  const right = head.map(name => name.startsWith(">"));
  const cells = (tag, row) => row.map((cell, n) => h(right[n] ? `${tag}.n` : head[n] === "" ? `${tag}.wide` : tag, null, cell));
  const names = head.map(name => name.replace(">", ""));
  table.replaceChildren(h("tr", null, ...cells("th", names)), ...rows.map(row => h("tr", null, ...cells("td", row))));
}

/** A bar of shares: [value, class] each, of a whole. */
export function bar(whole, ...shares) {
  return h("div.bar", null, ...shares.filter(([value]) => value > 0).map(([value, kind]) => {
    const part = h(kind ? `i.${kind}` : "i");
    part.style.width = `${100 * value / Math.max(whole, 1e-9)}%`;
    return part;
  }));
}

const NUMBERS = new Intl.NumberFormat("en");
export const count = value => value === null || value === undefined ? "–" : NUMBERS.format(Math.round(value));

/** A length of time for people, of milliseconds. */
export function span(ms) {
  if (ms === null || ms === undefined || !isFinite(ms)) return "–";
  const units = [[31557600000, "y"], [86400000, "d"], [3600000, "h"], [60000, "min"], [1000, "s"], [1, "ms"]];
  const [size, unit] = units.find(([size]) => Math.abs(ms) >= size) ?? [1, "ms"];
  const value = ms / size;
  return `${value >= 99.5 || Number.isInteger(value) ? Math.round(value).toLocaleString("en") : value.toPrecision(2)} ${unit}`;
}

/** A moment, of ms since 1970, in the browser's own time zone. */
export const moment = ms => ms === null || ms === undefined ? "–" : new Date(ms).toLocaleString("sv");

/** A number with what it is, in large. */
export const figure = (value, unit) => h("div", null, h("div.big", null, value), h("span.unit", null, unit));

export const css = name => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
export const water = alpha => `hsl(${css("--water")} / ${alpha})`;

/** Lines of [seconds ago, value] in a canvas, from five minutes ago to now; `series`: [points, colour, filled] each. */
export function lines(canvas, series) {
  const size = devicePixelRatio, width = canvas.width = canvas.clientWidth * size, height = canvas.height = canvas.clientHeight * size;
  const g = canvas.getContext("2d");
  const most = Math.max(1e-9, ...series.flatMap(([points]) => points.map(([, value]) => value)));
  for (const [points, colour, filled] of series) {
    g.beginPath();
    points.forEach(([ago, value]) => g.lineTo(width * (1 - ago / 300), height - 2 - (height - 8) * value / most));
    g.strokeStyle = colour;
    g.lineWidth = 1.5 * size;
    g.stroke();
    if (!filled || !points.length) continue;
    g.lineTo(width * (1 - points.at(-1)[0] / 300), height);
    g.lineTo(width * (1 - points[0][0] / 300), height);
    g.fillStyle = water(.12);
    g.fill();
  }
}
