// SPDX-License-Identifier: Apache-2.0
//
// Drain, release and stop: each asks first, and shows the daemon a token of the role operator, once.

import {fromTemplate, setHidden, setText} from "./dom.js";
import {sentenceOf} from "./format.js";
import {authorization} from "./token.js";

export function askToDrain(job, node) {
  ask({
    path: `/api/v1/jobs/${encodeURIComponent(job)}/drain`,
    body: {node},
    title: `Drain node ${node}?`,
    effect: `The node leaves job ${job} for good. The job goes on with the others, or waits for nodes.`,
    confirm: "Drain the node",
  });
}

export function askToRelease(job, node) {
  ask({
    path: `/api/v1/jobs/${encodeURIComponent(job)}/release`,
    body: {node},
    title: `Release node ${node}?`,
    effect: `The node may take part in the rounds of job ${job} again.`,
    confirm: "Release the node",
  });
}

export function askToStop(job) {
  ask({
    path: `/api/v1/jobs/${encodeURIComponent(job)}/stop`,
    body: {},
    title: `Stop job ${job}?`,
    effect: "All its workers are ended, on all nodes. The job does not begin again by itself.",
    confirm: "Stop the job",
  });
}

function ask({path, body, title, effect, confirm}) {
  const {root: dialog, slots} = fromTemplate("action-dialog");
  setText(slots.title, title);
  setText(slots.effect, effect);
  setText(slots.confirm, confirm);
  const show = (text) => {
    setText(slots.answer, text);
    setHidden(slots.answer, text === "");
  };
  if (!window.isSecureContext) {
    // By plain HTTP from another host: all of the network could read the token, and the daemon
    // would refuse it.
    const {hostname, port} = window.location;
    slots.token.disabled = true;
    slots.confirm.disabled = true;
    show("A token would cross the network unencrypted. Open this page by https, or at localhost after " +
      `ssh -L ${port}:localhost:${port} ${hostname}; or use regroup drain, release or stop.`);
  }
  slots.cancel.addEventListener("click", () => dialog.close());
  dialog.addEventListener("close", () => dialog.remove());
  dialog.querySelector("form").addEventListener("submit", async (event) => {
    event.preventDefault();
    if (document.getElementById("main").dataset.fresh !== "true") {
      show("The page has lost its connection. Another program may have taken the daemon's port, and " +
        "could read the token: wait until the daemon is back.");
      return;
    }
    slots.confirm.disabled = true;
    show("");
    const answer = await post(path, {...body, reason: slots.reason.value.trim()}, slots.token.value.trim());
    slots.confirm.disabled = false;
    if (answer.done) {
      dialog.close();
    } else {
      show(answer.text);
    }
  });
  document.body.append(dialog);
  dialog.showModal();
  slots.reason.focus();
}

/// Returns {done, text}.
async function post(path, body, token) {
  try {
    const {headers, ...rest} = authorization(token === "" ? undefined : token);
    const response = await fetch(path, {
      method: "POST",
      headers: {"Content-Type": "application/json", ...headers},
      body: JSON.stringify(body),
      signal: AbortSignal.timeout(15_000),
      ...rest,
    });
    return {done: response.ok, text: sentenceOf(await response.text())};
  } catch (error) {
    return {done: false, text: `The daemon did not answer: ${error.message}`};
  }
}
