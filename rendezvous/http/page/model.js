// SPDX-License-Identifier: Apache-2.0
//
// A job as the page knows it: the last status, and the events so far. All times are seconds on the
// job's timeline, which begins with the job.

import {stages} from "./states.js";

const eventsMax = 2048;
const samplesMax = 900;

export class JobModel {
  /// The last status, as the JSON of the daemon has it; null before the first.
  status = null;
  /// The oldest first. Their numbers increase.
  events = [];
  #began = "";
  #own = [];  // Steps since this page was opened.
  #rounds = null;
  #recoveries = null;

  /// Returns false if this is another job of the same name: its events are not known yet.
  showStatus(status) {
    const same = this.status === null || this.#began === status.began;
    if (!same) {
      this.events = [];
      this.#own = [];
    }
    this.#began = status.began;
    this.status = status;
    this.#rounds = null;
    this.#recoveries = null;
    const last = this.#own.at(-1);
    if (last === undefined || status.age_s - last[0] >= 1) {
      this.#own.push([status.age_s, status.step]);
      this.#own.splice(0, this.#own.length - samplesMax);
    }
    return same;
  }

  /// Adds events, each of them once.
  addEvents(events) {
    if (events.length === 0) {
      return;
    }
    const known = new Set(this.events.map((event) => event.number));
    const added = events.filter((event) => !known.has(event.number));
    if (added.length === 0) {
      return;
    }
    const last = this.events.at(-1)?.number ?? 0;
    this.events.push(...added);
    if (added[0].number < last) {
      this.events.sort((a, b) => a.number - b.number);
    }
    this.events.splice(0, this.events.length - eventsMax);
    this.#rounds = null;
    this.#recoveries = null;
  }

  /// The wall-clock time of a time on the job's timeline.
  date(at) {
    return new Date(Date.parse(this.status.time) + (at - this.status.age_s) * 1000);
  }

  /// The rounds, the oldest first: {number, formed, trains, ends, ranks, nodes}. `trains` is
  /// undefined until a round trains, and `ends` until it ends.
  rounds() {
    this.#rounds ??= roundsOf(this.events);
    return this.#rounds;
  }

  /// Recoveries and planned changes, the newest first: {round, nextRound, planned, cutShort, cause,
  /// decision, stages, total, lostSteps, lostAtLeast, from, to}. `stages` has a number of seconds
  /// for each of the seven stages. `from` and `to` are undefined if that event is no longer kept,
  /// `round` and `decision` if only the event is.
  recoveries() {
    this.#recoveries ??= recoveriesOf(this.status?.incidents ?? [], this.events, this.rounds());
    return this.#recoveries;
  }

  /// The step rate over time, as [{from, to, rate}].
  rates() {
    const own = this.#own;
    const old = (this.status?.step_samples ?? []).filter(([at]) => own.length === 0 || at < own[0][0]);
    const samples = [...old, ...own];
    const rates = [];
    for (let i = 1; i < samples.length; ++i) {
      const [from, before] = samples[i - 1];
      const [to, after] = samples[i];
      if (to > from) {
        rates.push({from, to, rate: Math.max(0, after - before) / (to - from)});
      }
    }
    return rates;
  }

  /// The ranks of the current round that have failed.
  failedRanks() {
    const round = this.status?.round;
    return new Set(this.events.filter((event) => event.event === "failed" && event.round === round)
      .map((event) => event.rank));
  }
}

function roundsOf(events) {
  const rounds = [];
  for (const event of events) {
    const at = event.job_time_s;
    const last = rounds.at(-1);
    if (event.event === "assigned") {
      if (last !== undefined) {
        last.ends ??= at;
      }
      rounds.push({number: event.round, formed: at, ranks: event.world_size, nodes: event.group_world_size});
    } else if (last !== undefined && event.round === last.number) {
      if (event.event === "running") {
        last.trains ??= at;
      } else if (event.event === "ending" || event.event === "closed") {
        last.ends ??= at;
      }
    }
  }
  return rounds;
}

function recoveriesOf(incidents, events, rounds) {
  // An event tells when a recovery was over, and an incident of the status what it was. The round
  // that followed names it.
  const found = new Map();
  for (const event of events.filter((one) => one.event === "recovered")) {
    found.set(event.next_round, {
      nextRound: event.next_round,
      planned: event.planned === true,
      cutShort: event.cut_short === true,
      cause: event.text ?? "",
      lostSteps: event.lost_steps ?? 0,
      ...timesOf(stages.map(({key}) => event.stages_s?.[key] ?? 0)),
      to: event.job_time_s,
    });
  }
  for (const incident of incidents) {
    found.set(incident.next_round, {
      ...found.get(incident.next_round),
      round: incident.round,
      nextRound: incident.next_round,
      planned: incident.planned === true,
      cutShort: incident.cut_short === true,
      cause: incident.cause ?? "",
      decision: incident.decision ?? "",
      lostSteps: incident.lost_steps ?? 0,
      lostAtLeast: incident.lost_at_least === true,
      ...timesOf(stages.map(({key}) => (incident[`${key}_us`] ?? 0) / 1e6)),
    });
  }
  for (const recovery of found.values()) {
    if (recovery.cutShort && recovery.to !== undefined) {
      // Told late, with the next recovery that was complete.
      recovery.to = rounds.find(({number}) => number === recovery.nextRound)?.ends ?? recovery.to;
    }
    if (recovery.to !== undefined) {
      recovery.from = recovery.to - recovery.total;
    }
  }
  return [...found.values()].sort((a, b) => b.nextRound - a.nextRound);
}

function timesOf(seconds) {
  return {stages: seconds, total: sum(seconds)};
}

function sum(numbers) {
  return numbers.reduce((all, number) => all + number, 0);
}
