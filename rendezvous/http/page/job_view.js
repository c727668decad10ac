// SPDX-License-Identifier: Apache-2.0
//
// The page of one job.

import {askToStop} from "./actions.js";
import {fromTemplate, onceAFrame, setHidden, setText} from "./dom.js";
import {Feed} from "./feed.js";
import {JobModel} from "./model.js";
import {Nodes} from "./nodes.js";
import {
  Budgets, Events, Figures, LastFailure, Quarantined, Snapshots, Training, UseOfTime, showPhase,
} from "./panels.js";
import {Recoveries} from "./recoveries.js";
import {Timeline} from "./timeline.js";
import {authorization} from "./token.js";

const eventsMax = 4096;  // Waiting to be drawn.

export class JobView {
  root;
  #job;
  #slots;
  #model = new JobModel();
  #feed;
  #panels;
  #nodes;
  #timeline;
  #draw = onceAFrame(() => this.#show());
  #status = null;  // Not drawn yet, like `#events`: a page that nobody sees draws nothing.
  #events = [];

  constructor(job, showConnection) {
    const {root, slots} = fromTemplate("job-view");
    this.root = root;
    this.#job = job;
    this.#slots = slots;
    setText(slots.name, job);
    const recoveries = new Recoveries(slots);
    this.#nodes = new Nodes(slots, job);
    this.#timeline = new Timeline(slots.timeline, slots.ranges, slots.timelineNote,
      (recovery) => recoveries.pick(recovery));
    this.#panels = [
      new Figures(slots), this.#timeline, new LastFailure(slots), recoveries, new UseOfTime(slots),
      new Budgets(slots), new Training(slots), new Snapshots(slots), this.#nodes, new Quarantined(slots, job), new Events(slots),
    ];
    slots.stop.addEventListener("click", () => askToStop(job));
    this.#feed = new Feed(`/api/v1/stream?job=${encodeURIComponent(job)}&nodes=0`,
      (name, data) => this.#take(name, data), (state) => {
        showConnection(state);
        if (state.word === "live") {
          this.#fetchEvents();
        } else if (state.status === 404) {
          this.#showAbsence();
        }
      });
  }

  stop() {
    this.#feed.stop();
    this.#timeline.stop();
    this.#nodes.stop();
  }

  #take(name, data) {
    if (name === "status") {
      this.#status = data;
    } else if (name === "job") {
      this.#events.push(JSON.parse(data));
      this.#events.splice(0, this.#events.length - eventsMax);
    }
    this.#draw();
  }

  /// The events before those of the stream.
  async #fetchEvents() {
    try {
      const path = `/api/v1/jobs/${encodeURIComponent(this.#job)}/events?nodes=0`;
      const response = await fetch(path, {cache: "no-store", ...authorization()});
      if (response.ok) {
        const lines = (await response.text()).split("\n").filter((line) => line !== "");
        this.#events.unshift(...lines.map((line) => JSON.parse(line)));
        this.#draw();
      }
    } catch {
      // The stream breaks as well then, and this is done again.
    }
  }

  #show() {
    if (this.#status !== null) {
      const job = JSON.parse(this.#status).jobs[0];
      this.#status = null;
      if (job === undefined) {
        this.#showAbsence();
        return;
      }
      if (!this.#model.showStatus(job)) {
        this.#events = [];
        this.#fetchEvents();
      }
    }
    if (this.#model.status === null) {
      return;
    }
    this.#model.addEvents(this.#events);
    this.#events = [];
    setHidden(this.#slots.panels, false);
    this.#showTop(this.#model.status);
    for (const panel of this.#panels) {
      panel.show(this.#model);
    }
  }

  #showTop(status) {
    const slots = this.#slots;
    this.root.dataset.phase = status.phase;
    this.root.dataset.round = status.round;
    document.title = `${this.#job}: ${status.phase} · regroup`;
    this.root.dataset.recoveries = status.incidents_count;
    showPhase(slots.phase, status);
    setText(slots.sentence, status.text);
    setHidden(slots.stop, status.phase === "closed");
    setHidden(slots.journal, status.journal === undefined);
    setText(slots.journal, status.journal ?? "");
  }

  /// The daemon does not know the job, or does not show it to this viewer. The page keeps its last state.
  #showAbsence() {
    this.root.dataset.phase = "unknown";
    showPhase(this.#slots.phase, {phase: "unknown"});
    setText(this.#slots.sentence, this.#model.status === null
      ? `The daemon has no job ${this.#job}.`
      : `The daemon no longer has job ${this.#job}. Below is what it told last.`);
    setHidden(this.#slots.stop, true);
  }
}
