// SPDX-License-Identifier: Apache-2.0
//
// Server-sent events of the daemon. The browser's own EventSource can neither show a token nor tell
// why it was refused, so this reads the stream itself.

import {sentenceOf} from "./format.js";
import {authorization} from "./token.js";

/// The daemon sends the status about each second. One that leads no more is silent.
const silenceLimit = 15_000;
const retryFirst = 250;
const retryMax = 5_000;

/// Splits a stream of events: calls `take(name, data)` for each whole one.
export class EventParser {
  #take;
  #rest = "";
  #name = "message";
  #data = [];

  constructor(take) {
    this.#take = take;
  }

  push(text) {
    const lines = (this.#rest + text).split("\n");
    this.#rest = lines.pop();
    for (const line of lines) {
      this.#line(line);
    }
  }

  #line(line) {
    const colon = line.indexOf(":");
    const field = colon < 0 ? line : line.slice(0, colon);
    const value = line.slice(colon + 1).replace(/^ /, "");
    if (line === "") {
      if (this.#data.length > 0) {
        this.#take(this.#name, this.#data.join("\n"));
      }
      this.#name = "message";
      this.#data = [];
    } else if (field === "event") {
      this.#name = value;
    } else if (field === "data") {
      this.#data.push(value);
    }
  }
}

/// Follows one stream until stop(), and connects again whenever it breaks.
export class Feed {
  #path;
  #take;
  #tell;
  #abort = null;
  #timer = 0;
  #retry = retryFirst;
  #stopped = false;
  #lostSince = null;

  /// `take(name, data)` gets each event. `tell(state)` gets {word, since, text, status} at each change:
  /// - "connecting": for the first time;
  /// - "live";
  /// - "lost": since the Date `since`; the feed tries again;
  /// - "refused": the daemon said `text`, with the `status` of HTTP; the feed tries again, unless it
  ///   wants a token.
  constructor(path, take, tell) {
    this.#path = path;
    this.#take = take;
    this.#tell = tell;
    this.#tell({word: "connecting"});
    window.addEventListener("online", this.#again);
    this.#run();
  }

  stop() {
    this.#stopped = true;
    window.removeEventListener("online", this.#again);
    clearTimeout(this.#timer);
    this.#abort?.abort();
  }

  #again = () => {
    if (!this.#stopped && this.#abort === null) {
      clearTimeout(this.#timer);
      this.#run();
    }
  };

  async #run() {
    this.#abort = new AbortController();
    let refusal = null;
    try {
      refusal = await this.#read(this.#abort);
    } catch {
      // The connection broke, or it could not be made.
    }
    this.#abort = null;
    if (this.#stopped) {
      return;
    }
    this.#lostSince ??= new Date();
    if (refusal !== null) {
      this.#tell({word: "refused", ...refusal, wantsToken: refusal.status === 401});
    } else {
      this.#tell({word: "lost", since: this.#lostSince});
    }
    if (refusal?.status !== 401) {
      // Not all pages at the same time.
      this.#timer = setTimeout(this.#again, this.#retry * (0.5 + Math.random() / 2));
      this.#retry = Math.min(this.#retry * 2, retryMax);
    }
  }

  /// Returns when the stream has ended, with the daemon's answer if that was another one.
  async #read(abort) {
    let watch = 0;
    const alive = () => {
      clearTimeout(watch);
      watch = setTimeout(() => abort.abort(), silenceLimit);
    };
    try {
      alive();
      const response = await fetch(this.#path, {
        signal: abort.signal, cache: "no-store", ...authorization(),
      });
      if (!response.ok) {
        return {status: response.status, text: sentenceOf(await response.text())};
      }
      this.#lostSince = null;
      this.#retry = retryFirst;
      this.#tell({word: "live"});
      const parser = new EventParser((name, data) => {
        alive();
        if (!this.#stopped) {
          this.#take(name, data);
        }
      });
      const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
      for (;;) {
        const {done, value} = await reader.read();
        if (done) {
          return null;
        }
        parser.push(value);
      }
    } finally {
      clearTimeout(watch);
    }
  }
}
