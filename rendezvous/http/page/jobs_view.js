// SPDX-License-Identifier: Apache-2.0
//
// The list of all jobs of the daemon.

import {KeyedList, fromTemplate, make, onceAFrame, setHidden, setText} from "./dom.js";
import {Feed} from "./feed.js";
import {count, counted} from "./format.js";
import {rateText, showPhase, stepText} from "./panels.js";

export class JobsView {
  root;
  #slots;
  #feed;
  #last = null;
  #rows;

  constructor(showConnection) {
    const {root, slots} = fromTemplate("jobs-view");
    this.root = root;
    this.#slots = slots;
    this.#rows = new KeyedList(slots.rows, createRow);
    const draw = onceAFrame(() => this.#draw());
    this.#feed = new Feed("/api/v1/stream?nodes=0", (name, data) => {
      if (name === "status") {
        this.#last = data;
        draw();
      }
    }, showConnection);
  }

  stop() {
    this.#feed.stop();
  }

  #draw() {
    const {jobs, jobs_left_out: leftOut = 0} = JSON.parse(this.#last);
    setText(this.#slots.sentence, sentence(jobs.length, leftOut));
    setHidden(this.#slots.region, jobs.length === 0);
    this.#rows.show(jobs, (job) => job.job);
    this.root.dataset.jobs = jobs.length;
  }
}

function sentence(shown, leftOut) {
  if (shown === 0) {
    return "This daemon has no job.";
  }
  return leftOut === 0
    ? `This daemon has ${counted(shown, "job")}.`
    : `The first ${count(shown)} of ${count(shown + leftOut)} jobs are shown.`;
}

function createRow(job) {
  const cell = (label, attributes = {}) =>
    make("td", {role: "cell", "data-label": label, ...attributes});
  const link = make("a", {href: `#jobs/${encodeURIComponent(job.job)}`}, job.job);
  const phase = make("span", {class: "phase"});
  const cells = {
    text: cell("Situation", {class: "text"}),
    nodes: cell("Nodes", {class: "number"}),
    ranks: cell("Ranks", {class: "number"}),
    step: cell("Step", {class: "number"}),
    rate: cell("Steps/s", {class: "number"}),
    restarts: cell("Restarts", {class: "number"}),
  };
  const phaseCell = cell("Phase");
  phaseCell.append(phase);
  const element = make("tr", {role: "row", "data-job": job.job},
    make("th", {scope: "row", role: "rowheader"}, link), phaseCell, ...Object.values(cells));
  return {
    element,
    update(now) {
      showPhase(phase, now);
      setText(cells.text, now.text);
      setText(cells.nodes, count(now.nodes.length + (now.nodes_left_out ?? 0)));
      setText(cells.ranks, count(now.world_size));
      setText(cells.step, stepText(now.step));
      setText(cells.rate, rateText(now));
      setText(cells.restarts, count(now.restarts));
    },
  };
}
