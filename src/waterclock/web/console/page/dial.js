// A wheel as nested dials: a ring for each level, the finest outside, a cell for each bucket in use, a hand at the next one.

import {bar, count, css, span} from "./parts.js";

const MIDDLE = 460, OUTER = 450, INNER = 118, GAP = 10, MOVE_MS = 350;
const still = matchMedia("(prefers-reduced-motion: reduce)");

export class Dial {
  constructor(canvas) {
    this.canvas = canvas;
    this.show(null);
  }

  /** Another wheel: nothing of the last one moves over to it. */
  show(name) {
    this.name = name;
    this.rings = [];
    this.frame = 0;
  }

  /** The wheel of now: {tick_ms, size, levels}, and `sizes` where levels have their own, `hands` where they are known. */
  update(dial) {
    const now = performance.now();
    this.sizeOf = level => dial.sizes?.[level] ?? dial.size;
    const deep = Math.max(2, dial.levels.length, this.rings.length);
    for (let level = 0; level < deep; level++) {
      const ring = this.rings[level] ??= {cells: new Map(), hand: null, from: null, since: -1e9};
      const used = dial.levels[level] ?? {};
      for (const [bucket, cell] of ring.cells) if (!(bucket in used) && cell.to) Object.assign(cell, {from: cell.to, to: 0, since: now});
      for (const [bucket, value] of Object.entries(used)) {
        const cell = ring.cells.get(bucket) ?? {to: 0};
        if (cell.to !== value) ring.cells.set(bucket, {from: cell.to, to: value, since: now});
      }
      const next = dial.hands ? dial.hands[level] ?? null : Object.keys(used).map(Number).sort((a, b) => a - b)[0] ?? null;
      if (next !== ring.hand) Object.assign(ring, {from: ring.hand, hand: next, since: now});
    }
    this.canvas.dataset.levels = JSON.stringify(dial.levels);
    this.canvas.setAttribute("aria-label", this.words(dial));
    this.draw();
  }

  words(dial) {
    const said = dial.levels.map((level, n) => {
      const values = Object.values(level);
      return `level ${n + 1}: ${count(values.reduce((a, b) => a + b, 0))} in ${values.length} of ${this.sizeOf(n)} buckets`;
    });
    return `The wheel ${this.name}: ${said.join("; ") || "nothing waits"}.`;
  }

  /** Draw, and go on drawing while something moves. */
  draw() {
    cancelAnimationFrame(this.frame);
    const moves = this.paint(performance.now());
    if (moves && !document.hidden) this.frame = requestAnimationFrame(() => this.draw());
  }

  paint(now) {
    const g = this.canvas.getContext("2d"), width = (OUTER - INNER) / Math.max(this.rings.length, 1);
    const colours = {track: css("--track"), hand: css("--hand"), water: css("--water")};
    let moves = false, all = 0;
    g.clearRect(0, 0, 2 * MIDDLE, 2 * MIDDLE);
    this.rings.forEach((ring, level) => {
      const outer = OUTER - level * width, inner = outer - width + GAP, size = this.sizeOf(level), step = 2 * Math.PI / size;
      sector(g, outer, inner, 0, 2 * Math.PI, colours.track);
      const most = Math.log1p(Math.max(1, ...[...ring.cells.values()].map(cell => cell.to)));
      for (const [bucket, cell] of ring.cells) {
        const part = still.matches ? 1 : Math.min(1, (now - cell.since) / MOVE_MS);
        moves ||= part < 1;
        all += cell.to;
        if (part === 1 && !cell.to) ring.cells.delete(bucket);
        const value = cell.from + (cell.to - cell.from) * part;
        const alpha = value > 0 ? Math.min(1, .25 + .75 * Math.log1p(value) / most) : 0;
        const begin = bucket * step - Math.PI / 2;
        sector(g, outer, inner, begin, begin + step * .9, `hsl(${colours.water} / ${alpha})`);
        if (part < 1 && !cell.from) sector(g, outer, inner, begin, begin + step * .9, colours.hand, 1 - part);
      }
      if (ring.hand === null) return;
      const part = still.matches || ring.from === null ? 1 : Math.min(1, (now - ring.since) / MOVE_MS);
      moves ||= part < 1;
      const way = ((ring.hand - ring.from) % size + size) % size;
      const angle = (part < 1 ? ring.from + way * part : ring.hand) * step + step * .45 - Math.PI / 2;
      g.strokeStyle = colours.hand;
      g.lineWidth = 4;
      g.lineCap = "round";
      g.beginPath();
      g.moveTo(MIDDLE + Math.cos(angle) * (inner - 3), MIDDLE + Math.sin(angle) * (inner - 3));
      g.lineTo(MIDDLE + Math.cos(angle) * (outer + 3), MIDDLE + Math.sin(angle) * (outer + 3));
      g.stroke();
    });
    g.textAlign = "center";
    g.fillStyle = css("--ink");
    g.font = `600 ${all < 1e7 ? 50 : 36}px ui-monospace, monospace`;
    g.fillText(count(all), MIDDLE, MIDDLE + 4);
    g.fillStyle = css("--soft");
    g.font = "26px system-ui";
    g.fillText(all === 1 ? "timer waits" : "timers wait", MIDDLE, MIDDLE + 42);
    return moves;
  }
}

function sector(g, outer, inner, begin, end, colour, alpha = 1) {
  g.beginPath();
  g.arc(MIDDLE, MIDDLE, outer, begin, end);
  g.arc(MIDDLE, MIDDLE, inner, end, begin, true);
  g.closePath();
  g.globalAlpha = alpha;
  g.fillStyle = colour;
  g.fill();
  g.globalAlpha = 1;
}

/** The rows of the table of levels. */
export function levels(dial) {
  const sums = dial.levels.map(level => Object.values(level).reduce((a, b) => a + b, 0));
  const all = sums.reduce((a, b) => a + b, 0);
  return dial.levels.map((level, n) => [
    String(n + 1), span(dial.tick_ms * dial.size ** n), span(dial.tick_ms * dial.size ** (n + 1)),
    `${Object.keys(level).length} of ${dial.size}`, count(sums[n]), bar(all, [sums[n]]),
  ]);
}
