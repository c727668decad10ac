// SPDX-License-Identifier: Apache-2.0
//
// Many nodes at a glance: a canvas with a square for each. Only squares that change are drawn.

import {stateOf} from "./states.js";

const gap = 2;
const sizeMax = 22;
const sizeMin = 11;
const heightWanted = 420;

export class NodeMap {
  #canvas;
  #context;
  #pick;
  #nodes = [];
  #drawn = [];  // The state that each square shows.
  #layout = null;
  #colors = null;
  #observer;
  #dark = matchMedia("(prefers-color-scheme: dark)");

  /// `pick(node)` is called for a click on a square.
  constructor(canvas, pick) {
    this.#canvas = canvas;
    this.#context = canvas.getContext("2d");
    this.#pick = pick;
    this.#observer = new ResizeObserver(() => this.#draw());
    this.#observer.observe(canvas.parentElement);
    this.#dark.addEventListener("change", this.#recolor);
    canvas.addEventListener("click", (event) => {
      const node = this.#nodeAt(event);
      if (node !== undefined) {
        this.#pick(node);
      }
    });
    canvas.addEventListener("mousemove", (event) => {
      const node = this.#nodeAt(event);
      canvas.title = node === undefined ? "" : `${node.name}: ${stateOf(node).word}`;
    });
  }

  stop() {
    this.#observer.disconnect();
    this.#dark.removeEventListener("change", this.#recolor);
  }

  /// `marked` has the names of the nodes that get a corner: they have a slow or failed rank.
  show(nodes, marked) {
    this.#nodes = nodes;
    this.#draw(marked);
  }

  #marked = new Set();

  #recolor = () => {
    this.#colors = null;
    this.#draw();
  };

  #nodeAt(event) {
    const {size, columns} = this.#layout ?? {size: 1, columns: 1};
    const column = Math.floor(event.offsetX / size);
    return column < columns ? this.#nodes[Math.floor(event.offsetY / size) * columns + column] : undefined;
  }

  #draw(marked = this.#marked) {
    this.#marked = marked;
    const width = this.#canvas.parentElement.clientWidth;
    if (this.#canvas.hidden || width === 0 || this.#nodes.length === 0) {
      return;
    }
    const layout = layoutOf(this.#nodes.length, width);
    const same = this.#layout !== null && this.#colors !== null &&
      ["size", "columns", "rows", "ratio"].every((field) => layout[field] === this.#layout[field]);
    if (!same) {
      this.#resize(layout);
    }
    this.#nodes.forEach((node, i) => {
      const state = stateOf(node);
      const shown = `${state.word}${marked.has(node.name) ? "!" : ""}`;
      if (this.#drawn[i] !== shown) {
        this.#drawn[i] = shown;
        this.#square(i, state, marked.has(node.name));
      }
    });
  }

  #resize(layout) {
    this.#layout = layout;
    this.#drawn = [];
    this.#canvas.width = layout.columns * layout.size * layout.ratio;
    this.#canvas.height = layout.rows * layout.size * layout.ratio;
    this.#canvas.style.width = `${layout.columns * layout.size}px`;
    this.#canvas.style.height = `${layout.rows * layout.size}px`;
    this.#context.setTransform(layout.ratio, 0, 0, layout.ratio, 0, 0);
    const style = getComputedStyle(document.documentElement);
    this.#colors = (name) => style.getPropertyValue(name).trim();
  }

  #square(index, state, marked) {
    const {size, columns} = this.#layout;
    const context = this.#context;
    const x = index % columns * size;
    const y = Math.floor(index / columns) * size;
    const inner = size - gap;
    const color = this.#colors(`--${state.word}`) || this.#colors("--text");
    context.clearRect(x, y, size, size);
    context.fillStyle = color;
    if (state.word === "running") {
      context.fillRect(x, y, inner, inner);
    } else {
      // Another shape than that of a running node, too: a frame with a letter.
      context.strokeStyle = color;
      context.lineWidth = 2;
      context.strokeRect(x + 1, y + 1, inner - 2, inner - 2);
      context.font = `bold ${Math.round(inner * 0.75)}px system-ui, sans-serif`;
      context.textAlign = "center";
      context.textBaseline = "middle";
      context.fillText(state.letter, x + inner / 2, y + inner / 2 + 1);
    }
    if (marked) {
      context.fillStyle = this.#colors("--mark");
      context.beginPath();
      context.moveTo(x + inner, y);
      context.lineTo(x + inner, y + inner * 0.7);
      context.lineTo(x + inner * 0.3, y);
      context.fill();
    }
  }
}

/// The largest squares with which all nodes are about as high as a screen.
function layoutOf(count, width) {
  let size = sizeMax;
  for (; size > sizeMin; --size) {
    if (Math.ceil(count / Math.floor(width / size)) * size <= heightWanted) {
      break;
    }
  }
  const columns = Math.max(1, Math.min(count, Math.floor(width / size)));
  return {size, columns, rows: Math.ceil(count / columns), ratio: window.devicePixelRatio || 1};
}
