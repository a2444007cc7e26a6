// The opinion on the tree: only what is open is drawn, everything else is asked for when opened.

import { bar, count, make, threeNumbers, twoDecimals } from "./words.js";

const MORE = 25;

export class OpinionTree {
  // `load(node, offset, limit)` gives a page of children; `onDetail(node)` shows numbers.
  constructor(root, load, onDetail) {
    this.root = root;
    this.load = load;
    this.onDetail = onDetail;
    this.items = new Map(); // li -> {node} or {more}
    this.predicted = null;
    root.addEventListener("keydown", (event) => this.onKey(event));
    root.addEventListener("click", (event) => this.onClick(event));
    root.addEventListener("focusin", (event) => this.detailOf(event.target));
    root.addEventListener("mouseover", (event) => this.detailOf(event.target));
    root.addEventListener("mouseleave", () => this.detailOf(document.activeElement));
  }

  show(rootNode, pages, predicted) {
    const byNode = new Map(pages.map((page) => [page.node, page]));
    this.items.clear();
    this.predicted = predicted;
    const top = this.item(rootNode, 1, byNode);
    this.root.replaceChildren(top);
    top.tabIndex = 0;
    this.mark(predicted);
  }

  item(node, level, byNode) {
    const canOpen = node.n_children > 0;
    const row = make(
      "div",
      { class: "row" },
      make("span", { class: "name" }, make("span", { class: "twist", "aria-hidden": "true" }), make("span", { class: "text" }, node.name)),
      node.level === "nothing" ? null : bar(node), // all of them together are certain
      node.level === "nothing" ? null : make("span", { class: "number" }, twoDecimals(node.probability)),
    );
    row.style.setProperty("--depth", Math.min(level - 1, 12));
    const li = make("li", { role: "treeitem", "aria-level": level, tabindex: -1, "data-node": node.node }, row);
    this.items.set(li, { node, level });
    this.label(li);
    if (canOpen) {
      const page = byNode?.get(node.node);
      li.setAttribute("aria-expanded", page ? "true" : "false");
      if (page) li.append(this.group(li, page, byNode));
    }
    return li;
  }

  label(li) {
    const { node } = this.items.get(li);
    const isPredicted = this.predicted !== null && node.node === this.predicted;
    li.classList.toggle("predicted", isPredicted);
    li.setAttribute("aria-label", `${node.name}, ${threeNumbers(node)}${isPredicted ? ", the prediction" : ""}`);
  }

  group(li, page, byNode) {
    const list = make("ul", { role: "group" });
    this.fill(li, list, page, byNode);
    return list;
  }

  fill(li, list, page, byNode) {
    const level = this.items.get(li).level + 1;
    page.children.forEach((node, place) => {
      const child = this.item(node, level, byNode);
      child.setAttribute("aria-posinset", page.offset + place + 1);
      child.setAttribute("aria-setsize", page.total);
      list.append(child);
    });
    const shown = page.offset + page.children.length;
    if (shown >= page.total) return;
    const text = `${count(page.total - shown, "other", "others")}, together ${twoDecimals(page.rest_probability)}`;
    const row = make("div", { class: "row" }, make("span", { class: "name" }, make("span", { class: "twist", "aria-hidden": "true" }), make("span", { class: "text" }, text)));
    row.style.setProperty("--depth", Math.min(level - 1, 12));
    const more = make("li", { role: "treeitem", "aria-level": level, "aria-posinset": shown + 1, "aria-setsize": page.total, tabindex: -1, class: "more", "aria-label": `Show more: ${text}` }, row);
    this.items.set(more, { more: { parent: li, offset: shown }, level });
    list.append(more);
  }

  mark(predicted) {
    this.predicted = predicted;
    for (const [li, item] of this.items) if (item.node) this.label(li);
  }

  async open(li) {
    const { node } = this.items.get(li);
    if (li.getAttribute("aria-busy") === "true") return;
    if (!li.querySelector(":scope > ul")) {
      const page = await this.fetch(li, node.node, 0);
      if (!page) return;
      li.append(this.group(li, page));
    }
    li.setAttribute("aria-expanded", "true");
  }

  async more(li) {
    const { parent, offset } = this.items.get(li).more;
    if (li.getAttribute("aria-busy") === "true") return;
    const hadFocus = document.activeElement === li;
    const page = await this.fetch(li, this.items.get(parent).node.node, offset);
    if (!page) return;
    const list = li.parentElement;
    this.items.delete(li);
    li.remove();
    const before = list.lastElementChild;
    this.fill(parent, list, page);
    const first = before.nextElementSibling;
    if (hadFocus) this.focus(first);
    else if (li.tabIndex === 0) this.current(first);
  }

  async fetch(li, node, offset) {
    li.setAttribute("aria-busy", "true");
    try {
      return await this.load(node, offset, MORE);
    } finally {
      li.removeAttribute("aria-busy");
    }
  }

  close(li) {
    li.setAttribute("aria-expanded", "false");
    // The focus must not stay on a row that is not there.
    if (li !== document.activeElement && li.contains(document.activeElement)) this.focus(li);
    else if (li.querySelector('[tabindex="0"]')) this.current(li);
  }

  toggle(li) {
    if (this.items.get(li).more) return this.more(li);
    if (li.getAttribute("aria-expanded") === "true") return this.close(li);
    if (li.hasAttribute("aria-expanded")) return this.open(li);
    return undefined;
  }

  visible() {
    return [...this.items.keys()]
      .filter((li) => li.isConnected && !li.parentElement.closest('[aria-expanded="false"]'))
      .sort((a, b) => (a.compareDocumentPosition(b) & Node.DOCUMENT_POSITION_FOLLOWING ? -1 : 1));
  }

  current(li) {
    this.root.querySelectorAll('[tabindex="0"]').forEach((other) => { other.tabIndex = -1; });
    li.tabIndex = 0;
  }

  focus(li) {
    this.current(li);
    li.focus();
  }

  onClick(event) {
    const li = event.target.closest('[role="treeitem"]');
    if (!li) return;
    this.focus(li);
    this.toggle(li);
  }

  onKey(event) {
    const li = event.target.closest('[role="treeitem"]');
    if (!li || event.altKey || event.ctrlKey || event.metaKey) return;
    const rows = this.visible();
    const place = rows.indexOf(li);
    const isOpen = li.getAttribute("aria-expanded");
    const above = li.parentElement.closest('[role="treeitem"]');
    const moves = {
      ArrowDown: () => rows[place + 1],
      ArrowUp: () => rows[place - 1],
      Home: () => rows[0],
      End: () => rows[rows.length - 1],
      ArrowRight: () => {
        if (isOpen === "true") return li.querySelector('[role="treeitem"]');
        this.toggle(li);
        return null;
      },
      ArrowLeft: () => {
        if (isOpen === "true") { this.close(li); return null; }
        return above;
      },
      Enter: () => { this.toggle(li); return null; },
      " ": () => { this.toggle(li); return null; },
    };
    let next;
    if (moves[event.key]) next = moves[event.key]();
    else if (event.key.length === 1) {
      const letter = event.key.toLowerCase();
      next = [...rows.slice(place + 1), ...rows.slice(0, place)].find((row) => this.items.get(row).node?.name.toLowerCase().startsWith(letter));
      if (!next) return;
    } else return;
    event.preventDefault();
    if (next) this.focus(next);
  }

  detailOf(target) {
    const li = target?.closest?.('[role="treeitem"]');
    const item = li && this.items.get(li);
    if (item?.node) this.onDetail(item.node);
  }
}
