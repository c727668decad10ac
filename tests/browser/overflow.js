// SPDX-License-Identifier: Apache-2.0
//
// The texts that stick out of the box that they are in. page_test.py evaluates this expression in the
// page. A text that scrolls, is cut off on purpose or is only read aloud may be wider than its box.
(() => {
  const wrong = [];
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (texts.nextNode()) {
    const text = texts.currentNode;
    const element = text.parentElement;
    if (text.data.trim() === "" || element.closest(".scroll, .bar, .unseen, svg, pre, noscript, .skip") !== null) {
      continue;
    }
    const box = element.closest("section, .figures > div, li, .note, header, article, dialog").getBoundingClientRect();
    const range = document.createRange();
    range.selectNodeContents(text);
    for (const line of range.getClientRects()) {
      if (line.left < box.left - 1 || line.right > box.right + 1) {
        wrong.push(`${text.data.trim().slice(0, 40)}: to ${Math.round(line.right)} of ${Math.round(box.right)}`);
      }
    }
  }
  const width = document.documentElement.clientWidth;
  if (document.documentElement.scrollWidth > width) {
    wrong.push(`the page is ${document.documentElement.scrollWidth} wide, not ${width}`);
  }
  return wrong;
})()
