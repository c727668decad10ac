# SPDX-License-Identifier: Apache-2.0
"""Measures the page of a job with 10, 100 and 1,000 nodes of 8 ranks: bytes and time until the
status is painted, then the browser's work for each new status. The daemon is a stand-in on this
machine.

    python3 tests/browser/measure.py [--daemon URL]

With --daemon it opens that page instead, such as http://127.0.0.1:29400/#jobs/nightly.
"""
import statistics
import sys
import threading
import time

import browser
import stand_in

WATCH = """
new MutationObserver((_, observer) => {
    if (document.querySelector('article')?.dataset.phase && window.paintedAt === undefined) {
        window.paintedAt = 0;
        requestAnimationFrame(() => setTimeout(() => { window.paintedAt = performance.now(); }));
        observer.disconnect();
    }
}).observe(document, {subtree: true, childList: true, attributes: true, attributeFilter: ['data-phase']});
"""
LOADS = 5
WATCHED_S = 10


def load(page, url):
    """Milliseconds until the status was painted, and the bytes that came by then."""
    page.events.clear()
    page.open(url)
    page.wait("window.paintedAt > 0", 60)
    painted = page.value("window.paintedAt")
    received = sum(event["params"]["dataLength"]
                   for event in page.events if event["method"] == "Network.dataReceived")
    return painted, received


def work(page):
    metrics = {one["name"]: one["value"] for one in page.command("Performance.getMetrics")["metrics"]}
    return metrics["TaskDuration"], metrics["JSHeapUsedSize"], metrics["Nodes"]


def measure(page, name, url, updates_a_second):
    loads = [load(page, url) for _ in range(LOADS)]
    before, _, _ = work(page)
    time.sleep(WATCHED_S)
    after, heap, nodes = work(page)
    print(f"{name:>12} {statistics.median(received for _, received in loads) / 1024:10.0f} KiB"
          f" {statistics.median(painted for painted, _ in loads):8.0f} ms"
          f" {(after - before) / WATCHED_S / updates_a_second * 1000:12.1f} ms"
          f" {(after - before) / WATCHED_S * 100:8.1f} % {heap / 2**20:8.1f} MiB {nodes:8.0f}", flush=True)


def main():
    if browser.find_chromium() is None:
        sys.exit("measure: there is no Chromium (sh cmake/setup.sh browser)")
    with browser.Browser() as page:
        page.command("Performance.enable")
        page.command("Network.setCacheDisabled", cacheDisabled=True)
        page.command("Page.addScriptToEvaluateOnNewDocument", source=WATCH)
        print(f"{'':>12} {'received':>14} {'painted':>11} {'each status':>15} {'of a core':>10}"
              f" {'heap':>12} {'DOM':>8}")
        if "--daemon" in sys.argv:
            measure(page, "daemon", sys.argv[sys.argv.index("--daemon") + 1], 1)
            return
        for nodes in (10, 100, 1000):
            server = stand_in.StandIn(stand_in.Job("nightly", nodes, 8), every=0.25)
            threading.Thread(target=server.serve_forever, daemon=True).start()
            measure(page, f"{nodes} nodes", server.url + "#jobs/nightly", 4)
            server.shutdown()
            server.server_close()


if __name__ == "__main__":
    main()
