// SPDX-License-Identifier: Apache-2.0
//
// Shows the view that the fragment of the address names: "#jobs/ID" one job, all else the list.

import {make, setHidden, setText} from "./dom.js";
import {clock, stamp} from "./format.js";
import {JobView} from "./job_view.js";
import {JobsView} from "./jobs_view.js";
import {keepToken} from "./token.js";

const main = document.getElementById("main");
const connection = document.getElementById("connection");
const allJobs = document.getElementById("all-jobs");
let view = null;

function jobOfFragment() {
  const match = /^#jobs\/(.+)$/.exec(location.hash);
  try {
    return match === null ? null : decodeURIComponent(match[1]);
  } catch {
    return null;
  }
}

/// Shows the state of the connection: see Feed.
function showConnection(state) {
  const texts = {
    connecting: () => "Connecting",
    live: () => "Live",
    lost: () => `Connection lost since ${clock(state.since)} UTC; trying again`,
    refused: () => state.text,
  };
  connection.dataset.connection = state.word;
  connection.title = state.since === undefined ? "" : stamp(state.since);
  setText(connection, texts[state.word]());
  main.dataset.fresh = String(state.word === "live");
  document.getElementById("token-form")?.remove();
  if (state.wantsToken === true) {
    main.prepend(tokenForm());
  }
}

/// Asks for the token with which this page may read.
function tokenForm() {
  const input = make("input", {
    id: "reading-token", type: "password", autocomplete: "off", spellcheck: "false",
  });
  const form = make("form", {id: "token-form", class: "warning"},
    make("label", {for: "reading-token"},
      `Token of the role observer${location.protocol === "https:" ? " or operator" : ""}`),
    input, make("button", {type: "submit"}, "Show the jobs"));
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    const refusal = keepToken(input.value);
    if (refusal === "") {
      show();
    } else {
      input.value = "";
      setText(connection, refusal);
    }
  });
  return form;
}

function show() {
  view?.stop();
  const job = jobOfFragment();
  document.title = job === null ? "regroup" : `${job} · regroup`;
  setHidden(allJobs, job === null);
  view = job === null ? new JobsView(showConnection) : new JobView(job, showConnection);
  main.replaceChildren(view.root);
}

window.addEventListener("hashchange", () => {
  show();
  view.root.querySelector("h1").focus();
});
document.getElementById("skip").addEventListener("click", (event) => {
  event.preventDefault();
  main.focus();
});
show();
