// SPDX-License-Identifier: Apache-2.0
//
// Numbers and times as people read them.

const whole = new Intl.NumberFormat("en-US", {maximumFractionDigits: 0});
const short = new Intl.NumberFormat("en-US", {maximumSignificantDigits: 3});

/// 12345 is "12,345".
export function count(number) {
  return whole.format(number);
}

/// "1 step", "2 steps".
export function counted(number, word) {
  return `${count(number)} ${word}${number === 1 ? "" : "s"}`;
}

/// Three digits: 47.8, 0.0123.
export function decimal(number) {
  return Math.abs(number) >= 1000 ? whole.format(number) : short.format(number);
}

/// 0.123 is "12.3 %". Less than all is never "100 %".
export function percent(share) {
  const rounded = Math.round(share * 1000) / 10;
  return `${share < 1 ? Math.min(rounded, 99.9) : rounded} %`;
}

/// "17 ms", "2.3 s", "4 min 10 s", "3 h 12 min", "2 d 4 h".
export function duration(seconds) {
  if (seconds < 0.0005) {
    return "0 ms";
  }
  if (seconds < 0.9995) {
    return `${short.format(Math.round(seconds * 1e4) / 10)} ms`;
  }
  if (seconds < 60) {
    return `${Math.round(seconds * 10) / 10} s`;
  }
  const units = [["d", 86400], ["h", 3600], ["min", 60], ["s", 1]];
  const large = units.findIndex(([, size]) => seconds >= size);
  const [name, size] = units[large];
  const [nextName, nextSize] = units[large + 1];
  const rest = Math.floor((seconds % size) / nextSize);
  return `${Math.floor(seconds / size)} ${name}${rest > 0 ? ` ${rest} ${nextName}` : ""}`;
}

/// The time of day, "21:20:00". All times of the page are UTC, like those of the daemon.
export function clock(date) {
  return stamp(date).slice(11, 19);
}

/// Day and time, for tooltips.
export function stamp(date) {
  return date.toISOString();
}

/// The sentence in an answer of the daemon, which is JSON or plain text.
export function sentenceOf(answer) {
  try {
    const {error, text} = JSON.parse(answer);
    return error ?? text ?? answer;
  } catch {
    return answer.trim();
  }
}
