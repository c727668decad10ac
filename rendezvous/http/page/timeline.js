// SPDX-License-Identifier: Apache-2.0
//
// The timeline of a job: its rounds, its recoveries and its step rate over one axis of time.

import {make, makeSvg, setText} from "./dom.js";
import {clock, counted, decimal, duration, stamp} from "./format.js";
import {stages} from "./states.js";

const ranges = [
  {name: "All", seconds: Infinity},
  {name: "1 h", seconds: 3600},
  {name: "10 min", seconds: 600},
  {name: "1 min", seconds: 60},
];
const drawEvery = 1000;  // Milliseconds, while nothing happens but steps.
const shownMax = 300;    // Rounds, and recoveries.

// From top to bottom, in pixels.
const left = 74;
const right = 10;
const roundsTop = 4;
const laneHeight = 22;
const marksTop = 34;
const rateTop = 70;
const rateHeight = 110;
const height = rateTop + rateHeight + 24;

export class Timeline {
  #host;
  #note;
  #pick;
  #model = null;
  #range = ranges[0];
  #width = 0;
  #svg = null;
  #drawnAt = 0;
  #drawn = "";
  #timer = 0;
  #observer;

  /// `pick(recovery)` is called for a click on a recovery.
  constructor(host, fieldset, note, pick) {
    this.#host = host;
    this.#note = note;
    this.#pick = pick;
    for (const range of ranges) {
      const input = make("input", {type: "radio", name: "range", value: range.name});
      input.checked = range === this.#range;
      input.addEventListener("change", () => {
        this.#range = range;
        this.#draw();
      });
      fieldset.append(make("label", {}, input, make("span", {}, range.name)));
    }
    this.#observer = new ResizeObserver(([entry]) => {
      this.#width = Math.floor(entry.contentRect.width);
      this.#draw();
    });
    this.#observer.observe(host);
  }

  stop() {
    this.#observer.disconnect();
    clearTimeout(this.#timer);
  }

  show(model) {
    this.#model = model;
    const news = JSON.stringify([model.events.at(-1)?.number, model.recoveries().length]);
    const wait = this.#drawnAt + drawEvery - performance.now();
    if (news !== this.#drawn || wait <= 0) {
      this.#drawn = news;
      this.#draw();
    } else if (this.#timer === 0) {
      this.#timer = setTimeout(() => this.#draw(), wait);
    }
  }

  #draw() {
    clearTimeout(this.#timer);
    this.#timer = 0;
    if (this.#model === null || this.#width === 0) {
      return;
    }
    this.#drawnAt = performance.now();
    const scale = this.#scale();
    const parts = [
      ...this.#axis(scale), ...this.#rate(scale), ...this.#rounds(scale), ...this.#marks(scale),
    ];
    const svg = makeSvg("svg", {width: this.#width, height, "aria-hidden": "true"}, ...parts);
    if (this.#svg === null) {
      this.#host.replaceChildren(svg);
    } else {
      this.#svg.replaceWith(svg);
    }
    this.#svg = svg;
    setText(this.#note, this.#summary(scale));
  }

  #scale() {
    const {status, events} = this.#model;
    const closed = events.findLast((event) => event.event === "closed")?.job_time_s;
    const to = Math.max(closed ?? status.age_s, 0.001);
    const from = Math.max(0, to - this.#range.seconds);
    const pixels = Math.max(1, this.#width - left - right);
    return {
      from,
      to,
      x: (at) => left + (Math.min(Math.max(at, from), to) - from) / (to - from) * pixels,
      perPixel: (to - from) / pixels,
    };
  }

  #summary({from, to}) {
    const model = this.#model;
    const rounds = model.rounds().filter(({ends = to}) => ends >= from).length;
    const shown = model.recoveries().filter((one) => one.to !== undefined && one.to >= from);
    const planned = shown.filter((one) => one.planned).length;
    const span = `${clock(model.date(from))} to ${clock(model.date(to))} UTC`;
    const rates = this.#rates(from).map(({rate}) => rate);
    const steps = rates.length > 0
      ? ` ${decimal(Math.min(...rates))} to ${decimal(Math.max(...rates))} steps/s.` : "";
    const first = model.events[0];
    const gap = first !== undefined && first.number > 1 && first.job_time_s > from
      ? ` The daemon no longer has events before ${clock(model.date(first.job_time_s))}.` : "";
    return `${span}: ${counted(rounds, "round")}, ${
      shown.length - planned === 1 ? "1 recovery" : `${shown.length - planned} recoveries`}, ${
      counted(planned, "planned change")}.${steps}${gap}`;
  }

  #axis({from, to, x, perPixel}) {
    const step = tickStep(perPixel * 84);
    // Ticks are at round times of day.
    const offset = this.#model.date(0).getTime() / 1000;
    const bottom = rateTop + rateHeight;
    const parts = [];
    for (let at = Math.ceil((from + offset) / step) * step - offset; at <= to; at += step) {
      const where = x(at);
      parts.push(makeSvg("line", {class: "tick", x1: where, x2: where, y1: bottom, y2: bottom + 4}));
      if (where > left + 24 && where < this.#width - 26) {
        parts.push(makeSvg("text", {class: "label", x: where, y: bottom + 17, "text-anchor": "middle"},
          tickText(this.#model.date(at), step)));
      }
    }
    return [
      ...parts,
      laneLabel("rounds", roundsTop + laneHeight / 2),
      laneLabel("recoveries", marksTop + laneHeight / 2),
    ];
  }

  /// The rates since `from`.
  #rates(from) {
    return this.#model.rates().filter((one) => one.to >= from);
  }

  #rate({from, x}) {
    const rates = this.#rates(from);
    const top = niceAbove(Math.max(0, ...rates.map(({rate}) => rate)));
    const bottom = rateTop + rateHeight;
    const y = (rate) => bottom - rate / top * (rateHeight - 6);
    const parts = [];
    for (const rate of [0, top / 2, top]) {
      parts.push(
        makeSvg("line", {class: "grid", x1: left, x2: this.#width - right, y1: y(rate), y2: y(rate)}),
        laneLabel(rate === top ? `${decimal(rate)}/s` : decimal(rate), y(rate)));
    }
    if (rates.length > 0) {
      let line = "";
      let end = -1;
      for (const {from: begin, to: until, rate} of rates) {
        line += `${begin === end ? "L" : "M"}${round(x(begin))} ${round(y(rate))}L${round(x(until))} ${round(y(rate))}`;
        end = until;
      }
      parts.push(makeSvg("path", {class: "rate", d: line}));
    }
    return parts;
  }

  #rounds({from, to, x}) {
    const rounds = this.#model.rounds().filter(({ends = to}) => ends >= from).slice(-shownMax);
    return rounds.flatMap((one) => {
      const begin = x(one.formed);
      const width = Math.max(1, x(one.ends ?? to) - begin);
      const trains = Math.min(width, Math.max(0, x(one.trains ?? one.ends ?? to) - begin));
      const title = makeSvg("title", {}, `round ${one.number}: ${counted(one.ranks ?? 0, "rank")} on ${
        counted(one.nodes ?? 0, "node")}, ${duration((one.ends ?? to) - one.formed)}`);
      const parts = [
        makeSvg("rect", {class: `round ${one.number % 2 === 0 ? "even" : "odd"}`, x: begin, width,
          y: roundsTop, height: laneHeight}, title),
      ];
      if (trains >= 1) {
        parts.push(makeSvg("rect", {class: "forming", x: begin, width: trains, y: roundsTop,
          height: laneHeight}));
      }
      const texts = [`round ${one.number}, ${counted(one.ranks ?? 0, "rank")}`, `round ${one.number}`,
        String(one.number)];
      const text = texts.find((each) => each.length * 7 + 8 < width);
      if (text !== undefined) {
        parts.push(makeSvg("text", {class: "round-text", x: begin + 5, y: roundsTop + 15}, text));
      }
      return parts;
    });
  }

  #marks({from, x, perPixel}) {
    const shown = this.#model.recoveries()
      .filter((one) => one.to !== undefined && one.to >= from).slice(0, shownMax);
    return shown.map((one) => {
      const kind = one.cutShort ? "cut-short" : one.planned ? "planned" : "unplanned";
      const group = makeSvg("g", {class: `mark ${kind}`, "data-recovery": one.nextRound},
        makeSvg("title", {}, `${clock(this.#model.date(one.from))}, ${duration(one.total)}: ${one.cause}`));
      const middle = x(one.from);
      if (!one.planned) {
        group.append(makeSvg("line", {class: "drop", x1: middle, x2: middle,
          y1: marksTop + laneHeight, y2: rateTop + rateHeight}));
      }
      if (one.total / perPixel >= 8) {
        let at = one.from;
        one.stages.forEach((seconds, i) => {
          const width = x(at + seconds) - x(at);
          group.append(makeSvg("rect", {class: `stage-${stages[i].key}`, x: x(at), width,
            y: marksTop + 3, height: laneHeight - 6}));
          at += seconds;
        });
      } else {
        group.append(makeSvg("path", {class: "shape", d: shapes[kind],
          transform: `translate(${round(middle)} ${marksTop + laneHeight / 2})`}));
      }
      group.addEventListener("click", () => this.#pick(one));
      return group;
    });
  }
}

const shapes = {
  unplanned: "M0-7L7 0L0 7L-7 0Z",
  planned: "M0-6L7 6L-7 6Z",
  "cut-short": "M-6-4L-4-6L0-2L4-6L6-4L2 0L6 4L4 6L0 2L-4 6L-6 4L-2 0Z",
};

function laneLabel(text, y) {
  return makeSvg("text", {class: "label", x: left - 6, y: y + 4, "text-anchor": "end"}, text);
}

function round(pixels) {
  return Math.round(pixels * 10) / 10;
}

/// The smallest usual distance of at least `seconds` between two ticks.
function tickStep(seconds) {
  const steps = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200];
  return steps.find((step) => step >= seconds) ?? Math.ceil(seconds / 86400) * 86400;
}

function tickText(date, step) {
  if (step >= 86400) {
    return stamp(date).slice(5, 10);
  }
  return clock(date).slice(0, step >= 60 ? 5 : 8);
}

/// 1, 2 or 5 times a power of ten, at least `value`.
function niceAbove(value) {
  if (value <= 0) {
    return 1;
  }
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 5, 10].map((factor) => factor * power).find((nice) => nice >= value);
}
