// SPDX-License-Identifier: Apache-2.0
//
// Small helpers for the document. Text goes in as text only: nothing that a job says can become
// markup.

/// An element of `tag` with attributes and children. A child that is a string becomes text.
export function make(tag, attributes = {}, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

/// The same for SVG.
export function makeSvg(tag, attributes = {}, ...children) {
  return fill(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);
}

function fill(element, attributes, children) {
  setAttributes(element, attributes);
  element.append(...children);
  return element;
}

export function setAttributes(element, attributes) {
  for (const [name, value] of Object.entries(attributes)) {
    const text = String(value);
    if (element.getAttribute(name) !== text) {
      element.setAttribute(name, text);
    }
  }
}

/// Sets the text of an element, unless it has that text: a live region would be read aloud again.
export function setText(element, text) {
  if (element.textContent !== text) {
    element.textContent = text;
  }
}

export function setHidden(element, hidden) {
  if (element.hidden !== hidden) {
    element.hidden = hidden;
  }
}

/// The factor by which a part of a bar grows. Below a sum of 1 the parts would not fill it.
export function share(part, whole) {
  return whole > 0 ? part / whole * 100 : 0;
}

/// A copy of a template of index.html, and its elements by the attribute data-slot.
export function fromTemplate(id) {
  const root = document.getElementById(id).content.firstElementChild.cloneNode(true);
  const slots = {};
  for (const element of root.querySelectorAll("[data-slot]")) {
    slots[element.dataset.slot] = element;
  }
  return {root, slots};
}

/// Keeps one child of `parent` for each item, in the order of the items. An item that stays keeps
/// its element, with the focus that may be in it.
export class KeyedList {
  #parent;
  #create;
  #rows = new Map();

  /// `create(item)` returns {element, update(item)}.
  constructor(parent, create) {
    this.#parent = parent;
    this.#create = create;
  }

  /// Items with the same `keyOf(item)`, a string or a number, are told apart by their order.
  show(items, keyOf) {
    const rows = new Map();
    let next = this.#parent.firstChild;
    for (const item of items) {
      let key = keyOf(item);
      while (rows.has(key)) {
        key = `${key} again`;
      }
      const row = this.#rows.get(key) ?? this.#create(item);
      rows.set(key, row);
      this.#rows.delete(key);
      row.update(item);
      if (row.element === next) {
        next = next.nextSibling;
      } else {
        this.#parent.insertBefore(row.element, next);
      }
    }
    for (const row of this.#rows.values()) {
      row.element.remove();
    }
    this.#rows = rows;
  }
}

/// Calls `draw` before the next frame, once for any number of calls until then. A page that nobody
/// sees draws nothing.
export function onceAFrame(draw) {
  let waits = false;
  return () => {
    if (!waits) {
      waits = true;
      requestAnimationFrame(() => {
        waits = false;
        draw();
      });
    }
  };
}
