# SPDX-License-Identifier: Apache-2.0
"""Drives a headless Chromium by its DevTools protocol over a pipe. Only the standard library."""
import base64
import json
import os
import select
import shutil
import signal
import subprocess
import tempfile
import time


OTHER_HOST = "node0.test"


def find_chromium():
    """The program, or None."""
    for name in ("chromium", "chromium-browser", "google-chrome"):
        path = shutil.which(name)
        if path:
            return path
    return None


class Browser:
    """One browser with one page. A context manager: the browser ends with the block."""

    def __init__(self, program=None, limit=60.0):
        self.limit = limit  # Seconds, for each command.
        self.profile = tempfile.mkdtemp(prefix="regroup-browser-")
        to_browser, self.output = os.pipe()
        self.input, from_browser = os.pipe()

        def place_pipes():
            # Chromium reads commands from descriptor 3 and answers on 4. Neither must be closed by
            # the other's dup2.
            reading, writing = os.dup(to_browser), os.dup(from_browser)
            high = [os.dup(one) for one in (reading, writing)]
            os.dup2(high[0], 3)
            os.dup2(high[1], 4)

        self.process = subprocess.Popen(
            [program or find_chromium(), "--headless=new", "--remote-debugging-pipe", "--no-sandbox",
             "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run", "--disable-extensions",
             # A page of this name is no page of localhost.
             f"--host-resolver-rules=MAP {OTHER_HOST} 127.0.0.1",
             "--disable-background-networking", "--hide-scrollbars", "--force-device-scale-factor=1",
             f"--user-data-dir={self.profile}", "about:blank"],
            preexec_fn=place_pipes, close_fds=False, start_new_session=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        os.close(to_browser)
        os.close(from_browser)
        self.number = 0
        self.received = b""
        self.events = []
        self.session = None
        targets = self.command("Target.getTargets")["targetInfos"]
        page = next(target for target in targets if target["type"] == "page")
        self.session = self.command("Target.attachToTarget",
                                    targetId=page["targetId"], flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.command(f"{domain}.enable")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        try:
            os.killpg(self.process.pid, signal.SIGKILL)  # The session that it began.
        except ProcessLookupError:
            pass
        self.process.wait()
        os.close(self.input)
        os.close(self.output)
        shutil.rmtree(self.profile, ignore_errors=True)

    def command(self, method, **params):
        """Sends a command and returns its result."""
        self.number += 1
        message = {"id": self.number, "method": method, "params": params}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.output, json.dumps(message).encode() + b"\0")
        until = time.monotonic() + self.limit
        while True:
            answer = self._receive(until)
            if answer is None:
                raise TimeoutError(f"{method}: no answer within {self.limit} s")
            if answer.get("id") == self.number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                return answer["result"]
            self.events.append(answer)

    def _receive(self, until):
        while b"\0" not in self.received:
            ready, _, _ = select.select([self.input], [], [], max(0.0, until - time.monotonic()))
            if not ready:
                return None
            part = os.read(self.input, 1 << 20)
            if not part:
                raise RuntimeError("the browser has ended")
            self.received += part
        message, self.received = self.received.split(b"\0", 1)
        return json.loads(message)

    def open(self, url, width=1280, height=900, dark=False):
        self.resize(width, height, dark)
        # Another fragment alone would not load the page again.
        self.command("Page.navigate", url="about:blank")
        self.command("Page.navigate", url=url)

    def resize(self, width, height, dark=False):
        self.command("Emulation.setDeviceMetricsOverride", width=width, height=height,
                     deviceScaleFactor=1, mobile=width < 600)
        self.command("Emulation.setEmulatedMedia", features=[
            {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}])

    def value(self, expression):
        """The value of a JavaScript expression; a promise is awaited."""
        answer = self.command("Runtime.evaluate", expression=expression, returnByValue=True,
                              awaitPromise=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(f"{expression}: {answer['exceptionDetails']}")
        return answer["result"].get("value")

    def wait(self, condition, limit=10.0):
        """Waits until a JavaScript condition holds; the page looks in each frame. Returns the seconds."""
        began = time.monotonic()
        while time.monotonic() - began < limit:
            try:
                if self.value(f"""new Promise((resolve) => {{
                    const until = performance.now() + 500;
                    const look = () => {{
                        let holds = false;
                        try {{ holds = Boolean({condition}); }} catch {{ }}
                        if (holds || performance.now() > until) {{ resolve(holds); }}
                        else {{ requestAnimationFrame(look); }}
                    }};
                    look();
                }})"""):
                    return time.monotonic() - began
            except RuntimeError as error:
                if "context" not in str(error).lower():  # The page was being loaded.
                    raise
        raise AssertionError(f"not within {limit} s: {condition}")

    def screenshot(self, path, whole=True):
        clip = {}
        if whole:
            size = self.command("Page.getLayoutMetrics")["cssContentSize"]
            clip = {"clip": {"x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": 1},
                    "captureBeyondViewport": True}
        shot = self.command("Page.captureScreenshot", format="png", **clip)
        with open(path, "wb") as file:
            file.write(base64.b64decode(shot["data"]))

    def complaints(self):
        """Errors and warnings of the page since it was opened."""
        self.value("0")
        texts = []
        for event in self.events:
            params = event.get("params", {})
            if event.get("method") == "Log.entryAdded" and params["entry"]["level"] in ("error", "warning"):
                texts.append(f"{params['entry']['text']} {params['entry'].get('url', '')}")
            elif event.get("method") == "Runtime.exceptionThrown":
                details = params["exceptionDetails"]
                texts.append(details.get("exception", {}).get("description", details["text"]))
        return texts
