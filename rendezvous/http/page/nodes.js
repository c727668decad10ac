// SPDX-License-Identifier: Apache-2.0
//
// The nodes of a job and their ranks: a table, and for many nodes a map before it.

import {askToDrain} from "./actions.js";
import {KeyedList, make, setAttributes, setHidden, setText} from "./dom.js";
import {count, counted, duration} from "./format.js";
import {NodeMap} from "./node_map.js";
import {ranksText, stepText} from "./panels.js";
import {stateOf, states} from "./states.js";

const mapFrom = 33;   // With fewer nodes the table shows them all.
const rowsFirst = 32;
const rowsMore = 64;
const chipsMax = 16;  // Ranks of a node that get a field each.

export class Nodes {
  #slots;
  #table;
  #legend;
  #map;
  #model = null;
  #filter = "";
  #state = null;  // Only nodes in this state are shown; null: in any.
  #rows = rowsFirst;

  constructor(slots, job) {
    this.#slots = slots;
    this.#table = new KeyedList(slots.nodes, ({node}) => createRow(node, job));
    this.#legend = new KeyedList(slots.legend, ({state}) => this.#createKey(state));
    this.#map = new NodeMap(slots.map, (node) => this.#search(node.name));
    slots.filter.addEventListener("input", () => this.#search(slots.filter.value));
    slots.moreNodes.addEventListener("click", () => {
      this.#rows += rowsMore;
      this.show(this.#model);
    });
  }

  stop() {
    this.#map.stop();
  }

  show(model) {
    this.#model = model;
    const {status} = model;
    const {nodes} = status;
    const leftOut = status.nodes_left_out ?? 0;
    const isMany = nodes.length >= mapFrom;
    const failed = model.failedRanks();
    const slow = new Map((status.slow_ranks ?? []).map(({rank, excess}) => [rank, excess]));

    this.#showLegend(nodes);
    setHidden(this.#slots.map, !isMany);
    setHidden(this.#slots.filterLine, !isMany);
    if (isMany) {
      this.#map.show(nodes, namesOf(nodes, [...failed, ...slow.keys()]));
      setAttributes(this.#slots.map, {"aria-label": `Map of ${counted(nodes.length, "node")}`});
    }

    const wanted = nodes.filter((node) => this.#wants(node));
    if (isMany) {
      // Stable: nodes in the same state stay in their order.
      wanted.sort((a, b) => stateOf(a).order - stateOf(b).order);
    }
    const shown = wanted.slice(0, this.#rows);
    const canDrain = status.phase !== "closed";
    this.#table.show(shown.map((node) => ({node, failed, slow, canDrain})), ({node}) => node.name);
    setHidden(this.#slots.moreNodes, shown.length === wanted.length);
    setText(this.#slots.nodesNote, note(nodes.length, shown.length, wanted.length, leftOut, isMany));
  }

  #wants(node) {
    return (this.#state === null || stateOf(node).word === this.#state) &&
      (this.#filter === "" || node.name.includes(this.#filter) || node.address.includes(this.#filter));
  }

  #search(text) {
    this.#filter = text.trim();
    this.#slots.filter.value = text;
    this.#rows = rowsFirst;
    this.show(this.#model);
  }

  #showLegend(nodes) {
    const counts = new Map();
    for (const node of nodes) {
      const {word} = stateOf(node);
      counts.set(word, (counts.get(word) ?? 0) + 1);
    }
    if (this.#state !== null && !counts.has(this.#state)) {
      this.#state = null;
    }
    const present = states.filter(({word}) => counts.has(word));
    this.#legend.show(present.map((state) =>
      ({state, number: counts.get(state.word), pressed: this.#state === state.word})), ({state}) => state.word);
  }

  /// A button of the legend.
  #createKey(state) {
    const text = make("span");
    const element = make("button", {type: "button", title: state.means, "data-state": state.word},
      badge(state), text);
    element.addEventListener("click", () => {
      this.#state = this.#state === state.word ? null : state.word;
      this.#rows = rowsFirst;
      this.show(this.#model);
    });
    return {
      element,
      update: ({number, pressed}) => {
        setText(text, `${count(number)} ${state.word}`);
        setAttributes(element, {"aria-pressed": pressed});
      },
    };
  }
}

function note(known, shown, wanted, leftOut, isMany) {
  const out = leftOut > 0 ? ` The status leaves ${counted(leftOut, "more node")} out.` : "";
  if (!isMany) {
    return `${counted(known, "node")}.${out}`;
  }
  return `${counted(known, "node")}, a square for each; one with a corner has a slow or failed rank. ` +
    `The table shows ${count(shown)} of ${count(wanted)}, those that do not run first.${out}`;
}

/// The names of the nodes that have one of `ranks`.
function namesOf(nodes, ranks) {
  return new Set(ranks.flatMap((rank) => nodes
    .filter(({first_rank: first, workers}) => first !== undefined && rank >= first && rank < first + workers)
    .map(({name}) => name)));
}

/// The sign of a state: its colour and its letter.
function badge(state) {
  return make("span", {class: "badge", "data-state": state.word, "aria-hidden": "true"}, state.letter);
}

function createRow(first, job) {
  const cell = (label, attributes = {}) =>
    make("td", {role: "cell", "data-label": label, ...attributes});
  const address = make("span", {class: "small"});
  const stateCell = cell("State");
  const ranks = cell("Ranks");
  const step = cell("Step", {class: "number"});
  const heard = cell("Heard", {class: "number"});
  const drain = make("button", {type: "button"}, "Drain",
    make("span", {class: "unseen"}, ` ${first.name}`));
  drain.addEventListener("click", () => askToDrain(job, first.name));
  const action = cell("Action", {class: "action"});
  action.append(drain);
  const element = make("tr", {role: "row", "data-node": first.name},
    make("th", {scope: "row", role: "rowheader"}, first.name, address), stateCell, ranks, step, heard, action);
  const stateText = make("span");
  const detail = make("span", {class: "small"});
  let word = "";
  const chips = new Chips(ranks);
  return {
    element,
    update({node, failed, slow, canDrain}) {
      const state = stateOf(node);
      if (state.word !== word) {
        word = state.word;
        element.dataset.state = word;
        setText(stateText, word);
        stateCell.replaceChildren(badge(state), stateText, detail);
      }
      setText(address, node.address === node.name ? "" : node.address);
      setText(detail, node.detail ?? "");
      chips.show(node, state, failed, slow);
      setText(step, stepText(node.step));
      setText(heard, `${duration(node.silent_s)} ago`);
      setHidden(drain, !canDrain || node.place === "leaving");
    },
  };
}

/// The ranks of a node, a field for each if they are few.
class Chips {
  #cell;
  #shown = "";

  constructor(cell) {
    this.#cell = cell;
  }

  show({first_rank: first, workers, finished_ranks: done = []}, state, failed, slow) {
    const finished = new Set(done);
    const marks = first === undefined ? [] : [...failed, ...slow.keys()]
      .filter((rank) => rank >= first && rank < first + workers);
    const shown = [first, workers, state.word, "", ...done, "", ...marks.map((rank) => [rank, slow.get(rank)])].join();
    if (shown === this.#shown) {
      return;
    }
    this.#shown = shown;
    if (first === undefined) {
      this.#cell.replaceChildren("–", make("span", {class: "unseen"}, "none"));
      return;
    }
    if (workers > chipsMax) {
      this.#cell.replaceChildren(ranksText(first, workers));
      return;
    }
    const chips = Array.from({length: workers}, (_, i) => {
      const rank = first + i;
      const word = failed.has(rank) ? "failed" : finished.has(rank) ? "finished"
        : slow.has(rank) ? "slow" : state.word;
      const sign = {failed: " ✕", slow: " ▲", finished: state.word === "finished" ? "" : " ✓"}[word] ?? "";
      return make("li", {"data-rank": rank, "data-state": word, title: `rank ${rank}: ${word}`},
        `${rank}${sign}`, make("span", {class: "unseen"}, ` ${word}`));
    });
    this.#cell.replaceChildren(make("ul", {class: "ranks"}, ...chips));
  }
}
