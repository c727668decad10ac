// SPDX-License-Identifier: Apache-2.0
//
// Lists the jobs of the daemon.
const list = document.getElementById("jobs");

function show(jobs) {
  list.replaceChildren(...jobs.map((job) => {
    const item = document.createElement("li");
    item.textContent = `${job.job}: ${job.phase}, ${job.text}`;
    return item;
  }));
}

const events = new EventSource("/api/v1/stream");
events.addEventListener("status", (event) => show(JSON.parse(event.data).jobs));
