// SPDX-License-Identifier: Apache-2.0
//
// Checks modules of the page that need no daemon. page_test.py evaluates this expression in the
// page; its value is a list of what is wrong.
(async () => {
  const wrong = [];
  const expect = (what, found, wanted) => {
    if (JSON.stringify(found) !== JSON.stringify(wanted)) {
      wrong.push(`${what}: ${JSON.stringify(found)} instead of ${JSON.stringify(wanted)}`);
    }
  };

  const {EventParser} = await import("/feed.js");
  const taken = [];
  const parser = new EventParser((name, data) => taken.push([name, data]));
  for (const part of ["event: sta", "tus\ndata: {\"a\":", "1}\n", "\n: alive\n\ndata: 1\ndata: 2\n\nevent: job\nda"]) {
    parser.push(part);
  }
  expect("events of a stream", taken, [["status", "{\"a\":1}"], ["message", "1\n2"]]);

  const format = await import("/format.js");
  expect("durations", [0, 0.0173, 0.9996, 2.34, 250, 11520, 187200].map(format.duration),
    ["0 ms", "17.3 ms", "1 s", "2.3 s", "4 min 10 s", "3 h 12 min", "2 d 4 h"]);
  expect("shares", [0, 0.99999, 1].map(format.percent), ["0 %", "99.9 %", "100 %"]);

  const panels = await import("/panels.js");
  expect("a program that does not tell its steps has none",
    [panels.stepText(0), panels.stepText(1234), panels.rateText({step: 0, step_rate: 0}),
      panels.rateText({step: 5, step_rate: 0})], ["–", "1,234", "–", "0"]);

  const {JobModel} = await import("/model.js");
  const model = new JobModel();
  const status = (fields) => ({began: "2026-01-01T00:00:00.000Z", time: "2026-01-01T00:00:20.000Z",
    age_s: 20, step: 100, round: 3, incidents: [], step_samples: [[1, 0], [11, 50]], ...fields});
  const event = (number, at, name, round, fields) =>
    ({number, job_time_s: at, event: name, round, ...fields});
  const events = [
    event(1, 1, "assigned", 1, {world_size: 4, group_world_size: 2}),
    event(2, 2, "running", 1),
    event(3, 10, "failed", 1, {rank: 3}),
    event(4, 10, "ending", 1),
    event(5, 10.5, "assigned", 2, {world_size: 4, group_world_size: 2}),
    event(6, 10.75, "ending", 2),
    event(7, 11, "assigned", 3, {world_size: 2, group_world_size: 1}),
    event(8, 12, "running", 3),
    event(9, 12, "recovered", 3, {next_round: 2, cut_short: true, stages_s: {stop: 0.75}}),
    event(10, 12, "recovered", 3, {next_round: 3, stages_s: {stop: 0.25, join: 1}, lost_steps: 2}),
  ];
  model.showStatus(status());
  model.addEvents(events.slice(5));
  model.addEvents(events);
  expect("events are kept once, in order", model.events.map(({number}) => number), [1, 2, 3, 4, 5, 6, 7, 8, 9, 10]);
  expect("rounds", model.rounds(), [
    {number: 1, formed: 1, ranks: 4, nodes: 2, trains: 2, ends: 10},
    {number: 2, formed: 10.5, ranks: 4, nodes: 2, ends: 10.75},
    {number: 3, formed: 11, ranks: 2, nodes: 1, trains: 12},
  ]);
  expect("times of recoveries", model.recoveries().map(({nextRound, from, to}) => [nextRound, from, to]),
    [[3, 10.75, 12], [2, 10, 10.75]]);
  model.showStatus(status({incidents: [
    {round: 2, next_round: 3, cause: "why", decision: "so", stop_us: 250000, join_us: 1000000, lost_steps: 2}]}));
  const [last] = model.recoveries();
  expect("an incident and its event are one recovery", [model.recoveries().length, last.round, last.decision,
    last.total, last.to, last.lostSteps], [2, 2, "so", 1.25, 12, 2]);
  expect("ranks of old rounds have not failed", [...model.failedRanks()], []);
  model.showStatus(status({round: 1}));
  expect("failed ranks", [...model.failedRanks()], [3]);
  expect("step rates", model.rates(), [{from: 1, to: 11, rate: 5}, {from: 11, to: 20, rate: 50 / 9}]);
  expect("another job of the same name", [model.showStatus(status({began: "2026-01-02T00:00:00.000Z"})),
    model.events.length], [false, 0]);

  const {KeyedList} = await import("/dom.js");
  const parent = document.createElement("ul");
  const list = new KeyedList(parent, (item) => {
    const element = document.createElement("li");
    return {element, update: () => { element.textContent = item; }};
  });
  list.show(["a", "b", "c"], (item) => item);
  const kept = parent.children[2];
  list.show(["c", "d", "a"], (item) => item);
  expect("keyed rows", [parent.textContent, parent.firstChild === kept], ["cda", true]);

  const {stateOf} = await import("/states.js");
  expect("states", [stateOf({place: "member", state: "stopping"}).word, stateOf({place: "away", state: "running"}).word,
    stateOf({place: "later word"}).letter], ["stopping", "away", "?"]);
  return wrong;
})()
