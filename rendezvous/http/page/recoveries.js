// SPDX-License-Identifier: Apache-2.0
//
// The list of recoveries: for each, when, why, what was decided, and the time of its stages.

import {KeyedList, make, setHidden, setText, share} from "./dom.js";
import {clock, counted, duration, stamp} from "./format.js";
import {stages} from "./states.js";

const shownFirst = 4;

export class Recoveries {
  #slots;
  #list;
  #shown = shownFirst;
  #model = null;

  constructor(slots) {
    this.#slots = slots;
    this.#list = new KeyedList(slots.recoveries, createItem);
    slots.moreRecoveries.addEventListener("click", () => {
      this.#shown += 8 * shownFirst;
      this.show(this.#model);
    });
  }

  show(model) {
    this.#model = model;
    const all = model.recoveries();
    const {status} = model;
    const shown = all.slice(0, this.#shown);
    setText(this.#slots.recoveriesNote, note(status, all.length));
    this.#list.show(shown.map((one) => ({one, model})), ({one}) => one.nextRound);
    setHidden(this.#slots.moreRecoveries, shown.length === all.length);
  }

  /// Moves the focus to a recovery.
  pick({nextRound}) {
    while (this.#shown < this.#model.recoveries().length && this.#item(nextRound) === null) {
      this.#shown += 8 * shownFirst;
      this.show(this.#model);
    }
    this.#item(nextRound)?.focus();
  }

  #item(nextRound) {
    return this.#slots.recoveries.querySelector(`[data-recovery="${Number(nextRound)}"]`);
  }
}

function note(status, known) {
  const total = status.incidents_count;
  if (total === 0 && known === 0) {
    return "None so far.";
  }
  return `${status.recoveries_text ?? total}.${known < total ? ` The last ${known} are kept.` : ""}`;
}

function createItem({one: first}) {
  const kind = make("span", {class: "kind"});
  const when = make("time");
  const head = make("span");
  const cause = make("p", {class: "cause"});
  const decision = make("p", {class: "decision"});
  const bar = make("div", {class: "bar", "aria-hidden": "true"});
  const parts = stages.map((stage) => {
    const part = make("span", {class: `stage-${stage.key}`, title: stage.means}, stage.name);
    bar.append(part);
    return part;
  });
  const text = make("ul", {class: "stages"});
  const texts = stages.map((stage) => {
    const value = make("span");
    const item = make("li", {title: stage.means},
      make("span", {class: `swatch stage-${stage.key}`, "aria-hidden": "true"}), `${stage.name} `, value);
    text.append(item);
    return {item, value};
  });
  const element = make("li", {tabindex: "-1", "data-recovery": first.nextRound},
    make("p", {class: "head"}, kind, when, head), cause, decision, bar, text);
  return {
    element,
    update({one, model}) {
      const word = one.cutShort ? "cut short" : one.planned ? "planned" : "recovery";
      element.dataset.kind = one.cutShort ? "cut-short" : one.planned ? "planned" : "unplanned";
      element.dataset.lostSteps = one.lostSteps;
      element.dataset.totalMs = Math.round(one.total * 1000);
      setText(kind, word);
      setHidden(when, one.from === undefined);
      if (one.from !== undefined) {
        const date = model.date(one.from);
        setText(when, clock(date));
        when.title = stamp(date);
      }
      const rounds = one.nextRound === 0 ? `round ${one.round ?? ""}, then the end`
        : `round ${one.round === undefined ? "" : `${one.round} `}→ ${one.nextRound}`;
      const lost = `${one.lostAtLeast ? "at least " : ""}${counted(one.lostSteps, "step")} lost`;
      setText(head, `${rounds} · ${duration(one.total)} · ${lost}`);
      setText(cause, one.cause);
      setText(decision, one.decision ?? "");
      setHidden(decision, !one.decision);
      one.stages.forEach((seconds, i) => {
        setHidden(parts[i], seconds <= 0);
        parts[i].style.flexGrow = share(seconds, one.total);
        setHidden(texts[i].item, seconds <= 0);
        setText(texts[i].value, duration(seconds));
      });
    },
  };
}
