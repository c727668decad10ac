// SPDX-License-Identifier: Apache-2.0
//
// The states in which the page shows a node. Each has a letter, since colours are not for all eyes.
// style.css has the colours, by the word: --running and so on.

/// By rank in a list: what needs a look comes first.
const states = [
  {word: "away", letter: "A", means: "its connection is broken; it may come back"},
  {word: "quarantined", letter: "Q", means: "kept out of rounds after failures"},
  {word: "leaving", letter: "L", means: "leaves the job"},
  {word: "stopped", letter: "O", means: "in the round, but no worker trains yet or any more"},
  {word: "stopping", letter: "T", means: "its workers are being ended"},
  {word: "waiting", letter: "W", means: "waits for a round"},
  {word: "standby", letter: "S", means: "replaces a node that is lost"},
  {word: "finished", letter: "F", means: "its workers are done"},
  {word: "running", letter: "", means: "its workers run"},
];
states.forEach((state, order) => {
  state.order = order;
});
const byWord = new Map(states.map((state) => [state.word, state]));

/// All of them, those that need a look first.
export {states};

/// The state of a node of the JSON status: of a member, what its workers do; of another, its place.
/// A later daemon may have words that this page does not know.
export function stateOf(node) {
  const word = node.place === "member" ? node.state : node.place;
  return byWord.get(word) ?? {word, letter: "?", means: "", order: 0};
}

/// The stages of a recovery: the key in the JSON, and what it is.
export const stages = [
  {key: "detect", name: "detect", means: "from the first sign until the daemon ended the round"},
  {key: "decide", name: "decide", means: "back-off, or waiting for nodes that may come back"},
  {key: "stop", name: "stop", means: "until no worker of the old round ran"},
  {key: "join", name: "join", means: "until the next round was formed and rank 0 had entered it"},
  {key: "communicator", name: "communicator", means: "until its workers were connected"},
  {key: "state", name: "state", means: "until each worker had the state"},
  {key: "first_step", name: "first step", means: "until the first step was committed"},
];

/// On what a job spends its time: see `time_s` in the JSON.
export const uses = [
  {key: "productive", name: "productive", means: "in steps that were kept"},
  {key: "lost", name: "repeated steps", means: "in steps that were done again"},
  {key: "recovering", name: "recovering", means: "from the last committed step before a failure until steps went on"},
  {key: "planned", name: "planned changes", means: "nodes joined or were drained"},
  {key: "waiting", name: "waiting", means: "before the first step"},
];
