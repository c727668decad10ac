// SPDX-License-Identifier: Apache-2.0
//
// The smaller parts of the page of a job. Each has one function show(model).

import {askToRelease} from "./actions.js";
import {KeyedList, make, setHidden, setText, share} from "./dom.js";
import {clock, count, decimal, duration, percent, stamp} from "./format.js";
import {uses} from "./states.js";

const eventsShown = 100;

/// Terms and their values: `entries` is a list of [term, text].
class Facts {
  #list;

  constructor(parent) {
    this.#list = new KeyedList(parent, ([term]) => {
      const value = make("dd");
      return {
        element: make("div", {}, make("dt", {}, term), value),
        update: ([, text]) => setText(value, text),
      };
    });
  }

  show(entries) {
    this.#list.show(entries, ([term]) => term);
  }
}

/// A bar of shares, and a table with the same numbers. `parts` is a list of {key, name, means}.
class Shares {
  #parts;

  constructor(bar, rows, parts) {
    this.#parts = parts.map((part) => {
      const piece = make("span", {class: `use-${part.key}`}, part.name);
      const time = make("td", {class: "number"});
      const portion = make("td", {class: "number"});
      bar.append(piece);
      rows.append(make("tr", {title: part.means},
        make("th", {scope: "row"},
          make("span", {class: `swatch use-${part.key}`, "aria-hidden": "true"}), part.name),
        time, portion));
      return {key: part.key, piece, time, portion};
    });
  }

  /// `seconds` has a number for each key.
  show(seconds) {
    const all = this.#parts.reduce((sum, {key}) => sum + (seconds[key] ?? 0), 0);
    for (const {key, piece, time, portion} of this.#parts) {
      const value = seconds[key] ?? 0;
      setHidden(piece, value <= 0);
      piece.style.flexGrow = share(value, all);
      setText(time, duration(value));
      setText(portion, percent(all > 0 ? value / all : 0));
    }
  }
}

export class Figures {
  #facts;

  constructor(slots) {
    this.#facts = new Facts(slots.figures);
  }

  show({status}) {
    const all = Object.values(status.totals.time_s).reduce((sum, seconds) => sum + seconds, 0);
    this.#facts.show([
      ["Round", count(status.round)],
      ["Nodes", count(status.nodes.length + (status.nodes_left_out ?? 0))],
      ["Ranks", count(status.world_size)],
      ["Step", stepText(status.step)],
      ["Steps/s", rateText(status)],
      ["Goodput", all > 0 ? percent(goodput(status.totals.time_s)) : "–"],
      ["Steps lost", `${status.lost_at_least ? "≥ " : ""}${count(status.lost_steps)}`],
      ["Restarts", count(status.restarts)],
      ["Age", duration(status.age_s)],
    ]);
  }
}

/// The share of productive time since the job trained first.
function goodput(time) {
  const all = Object.values(time).reduce((sum, seconds) => sum + seconds, 0);
  const trained = all - (time.waiting ?? 0);
  return trained > 0 ? time.productive / trained : 0;
}

export class UseOfTime {
  #slots;
  #shares;

  constructor(slots) {
    this.#slots = slots;
    this.#shares = new Shares(slots.timeBar, slots.timeRows, uses);
  }

  show({status}) {
    const time = status.totals.time_s;
    const all = Object.values(time).reduce((sum, seconds) => sum + seconds, 0);
    const ettr = all > 0 ? time.productive / all : 0;
    setText(this.#slots.goodput,
      `Goodput ${percent(goodput(time))} since the first step; ETTR ${percent(ettr)} with the wait before it`);
    this.#shares.show(time);
  }
}

export class Budgets {
  #list;

  constructor(slots) {
    this.#list = new KeyedList(slots.budgets, ({what}) => {
      const text = make("span");
      const meter = make("meter", {min: 0, "aria-hidden": "true"});
      return {
        element: make("tr", {"data-budget": what},
          make("th", {scope: "row"}, what), make("td", {class: "number"}, text, " ", meter)),
        update: ({used, allowed}) => {
          setText(text, allowed === undefined ? `${used}, no limit` : `${used} of ${allowed}`);
          setHidden(meter, allowed === undefined);
          if (allowed !== undefined) {
            meter.max = Math.max(1, allowed);
            meter.high = 0.7 * meter.max;
            meter.value = used;
          }
        },
      };
    });
  }

  show({status}) {
    this.#list.show(status.budgets, ({what}) => what);
  }
}

export class LastFailure {
  #slots;
  #facts;

  constructor(slots) {
    this.#slots = slots;
    this.#facts = new Facts(slots.failureFacts);
  }

  show({status}) {
    const failure = status.last_failure;
    setHidden(this.#slots.failure, failure === undefined);
    if (failure === undefined) {
      return;
    }
    const optional = (term, text) => (text ? [[term, text]] : []);
    this.#slots.failure.dataset.rank = failure.rank;
    setText(this.#slots.failureText, failure.text);
    this.#facts.show([
      ["Time", failure.time],
      ["Rank", String(failure.rank)],
      ["Node", failure.node],
      ...optional("Host", failure.host),
      ["Process", String(failure.pid)],
      ["Exit code", String(failure.exit_code)],
      ...optional("Log", failure.log_file),
      ...optional("Error", failure.error_message),
    ]);
    setHidden(this.#slots.failureOutput, !failure.last_output);
    setText(this.#slots.failureLines, failure.last_output ?? "");
  }
}

export class Quarantined {
  #slots;
  #list;

  constructor(slots, job) {
    this.#slots = slots;
    this.#list = new KeyedList(slots.quarantinedRows, ({name}) => {
      const text = make("span");
      const release = make("button", {type: "button"}, "Release", make("span", {class: "unseen"}, ` ${name}`));
      release.addEventListener("click", () => askToRelease(job, name));
      return {
        element: make("li", {class: "title", "data-quarantined": name}, text, release),
        update: ({text: told}) => setText(text, told),
      };
    });
  }

  show({status}) {
    setHidden(this.#slots.quarantined, status.quarantined.length === 0);
    this.#list.show(status.quarantined, ({name}) => name);
  }
}

export class Events {
  #list;

  constructor(slots) {
    const cell = (text, attributes = {}) => make("td", {role: "cell", ...attributes}, text);
    this.#list = new KeyedList(slots.events, (event) => {
      const date = new Date(event.time);
      const ranks = event.rank !== undefined ? ranksText(event.rank, 1)
        : event.workers > 0 ? ranksText(event.first_rank, event.workers) : "";
      const node = `${event.node ?? ""}${ranks === "" ? "" : ` (${ranks})`}`;
      const element = make("tr", {role: "row", "data-event": event.event, "data-number": event.number},
        cell(clock(date), {title: stamp(date)}), cell(event.event),
        cell(event.round === 0 ? "" : count(event.round), {class: "number", "data-label": "Round"}), cell(node),
        cell(event.summary ?? event.text ?? event.cause ?? "", {class: "text"}));
      return {element, update() {}};
    });
  }

  show(model) {
    const newest = model.events.slice(-eventsShown).reverse();
    this.#list.show(newest, (event) => event.number);
  }
}

/// Shows the phase of a job, of a closed one how it ended, and of a training one whether it stands still.
export function showPhase(element, {phase, state, verdict}) {
  const outcome = verdict?.outcome ?? "";
  const isStalled = state === "stalled";
  element.dataset.phase = isStalled ? state : phase;
  element.dataset.outcome = outcome;
  const more = isStalled ? state : outcome;
  setText(element, more === "" ? phase : `${phase}: ${more}`);
}

/// A program that does not tell its steps is at step 0 for ever.
export function stepText(step) {
  return step === 0 ? "–" : count(step);
}

export function rateText({step, step_rate: rate}) {
  return step === 0 ? "–" : decimal(rate);
}

/// "rank 3", "ranks 0–7".
export function ranksText(first, workers) {
  return workers === 1 ? `rank ${first}` : `ranks ${first}–${first + workers - 1}`;
}

const stepParts = [
  {key: "compute", name: "compute", means: "what is left"},
  {key: "data", name: "data", means: "in sections called data"},
  {key: "communication", name: "communication", means: "waiting for collectives and messages"},
  {key: "waiting", name: "waiting", means: "at the end of the step, for the other ranks"},
];

/// Which step of the state is kept, and where.
export class Snapshots {
  #slots;
  #facts;

  constructor(slots) {
    this.#slots = slots;
    this.#facts = new Facts(slots.snapshotFacts);
  }

  show({status}) {
    const told = status.snapshots;
    setHidden(this.#slots.snapshots, told === undefined);
    if (told === undefined) {
      return;
    }
    const step = (number) => (number === undefined ? "none" : count(number));
    this.#facts.show([
      ["newest step", count(told.step)],
      ["age", duration(told.age_s)],
      ["with copies", step(told.kept_step)],
      ["in the folder", step(told.written_step)],
      ["memory of the first node", `${decimal(told.memory_bytes / 2 ** 30)} GiB`],
    ]);
  }
}

/// The training program's own report: its values, its samples, the time of its steps, slow ranks.
export class Training {
  #slots;
  #facts;
  #shares;
  #slow;

  constructor(slots) {
    this.#slots = slots;
    this.#facts = new Facts(slots.values);
    this.#shares = new Shares(slots.stepBar, slots.stepRows, stepParts);
    this.#slow = new KeyedList(slots.slowRanks, () => {
      const element = make("li");
      return {
        element,
        update: ({rank, excess}) =>
          setText(element, `rank ${rank}: ${percent(excess)} more time than the others`),
      };
    });
  }

  show({status}) {
    const told = status.telemetry ?? {};
    const slow = status.slow_ranks ?? [];
    setHidden(this.#slots.training, status.telemetry === undefined && slow.length === 0);
    this.#facts.show([
      ...Object.entries(told.values ?? {}).map(([name, value]) => [name, decimal(value)]),
      ...(told.samples_per_s > 0 ? [["samples/s", decimal(told.samples_per_s)]] : []),
    ]);
    this.#shares.show(told.step_s ?? {});
    setHidden(this.#slots.noSlowRanks, slow.length > 0);
    this.#slow.show(slow, ({rank}) => rank);
  }
}
